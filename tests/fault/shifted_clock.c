// SPDX-License-Identifier: Apache-2.0
// Preloaded into a process, it shifts the wall clock of the process by SHIFTED_CLOCK_S seconds. Other clocks, and the
// clock of the kernel, keep their time.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t shift(void) {
  const char* const seconds = getenv("SHIFTED_CLOCK_S");
  return seconds == NULL ? 0 : (time_t)atoll(seconds);
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec* now) {
  const int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
  return result;
}

__attribute__((visibility("default"))) int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  (void)zone;
  struct timespec time;
  const int result = clock_gettime(CLOCK_REALTIME, &time);
  now->tv_sec = time.tv_sec;
  now->tv_usec = time.tv_nsec / 1000;
  return result;
}

__attribute__((visibility("default"))) time_t time(time_t* now) {
  struct timespec real;
  clock_gettime(CLOCK_REALTIME, &real);
  if (now != NULL) *now = real.tv_sec;
  return real.tv_sec;
}
