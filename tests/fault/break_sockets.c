// SPDX-License-Identifier: Apache-2.0
// Preloaded into a process, it breaks the connections of net-socket at random times, about every BREAK_SOCKETS_MS
// milliseconds. It knows them by the option TCP_CONGESTION, which only net-socket sets
// (settings.net.socket.congestion). It breaks a connection only if the connection has carried some data: a connection
// that breaks while it is made again counts as a lost route. At its end, the process prints the number of connections
// that it broke to standard error.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { kMost = 4096, kLeastBytes = 4096 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  // guards all that follows
static int sockets[kMost];
static int count = 0;
static int broken = 0;
static int running = 0;

/// The same sequence of pauses and connections in each process.
static long next_random(long below) {
  static unsigned long state = 88172645463325252UL;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (long)(state % (unsigned long)below);
}

static int has_carried_data(int fd) {
  struct tcp_info info;
  socklen_t length = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return 0;
  return info.tcpi_bytes_acked + info.tcpi_bytes_received >= kLeastBytes;
}

static void* breaks(void* unused) {
  (void)unused;
  const char* const text = getenv("BREAK_SOCKETS_MS");
  const long mean_ms = text == NULL ? 20 : atol(text);
  for (;;) {
    const long pause_us = 1 + next_random(2 * mean_ms * 1000);
    const struct timespec pause = {pause_us / 1000000, pause_us % 1000000 * 1000};
    nanosleep(&pause, NULL);
    pthread_mutex_lock(&mutex);
    const int i = count > 0 ? (int)next_random(count) : -1;
    if (i >= 0 && has_carried_data(sockets[i]) && shutdown(sockets[i], SHUT_RDWR) == 0) {
      sockets[i] = sockets[--count];
      ++broken;
    }
    pthread_mutex_unlock(&mutex);
  }
  return NULL;
}

static void report(void) {
  pthread_mutex_lock(&mutex);
  fprintf(stderr, "broke %d connections\n", broken);
  pthread_mutex_unlock(&mutex);
}

__attribute__((visibility("default"))) int setsockopt(int fd, int level, int name, const void* value,
                                                      socklen_t length) {
  static int (*next)(int, int, int, const void*, socklen_t) = NULL;
  if (next == NULL) *(void**)&next = dlsym(RTLD_NEXT, "setsockopt");
  const int result = next(fd, level, name, value, length);
  if (result != 0 || level != IPPROTO_TCP || name != TCP_CONGESTION) return result;
  pthread_mutex_lock(&mutex);
  if (count < kMost) sockets[count++] = fd;
  if (!running) {
    pthread_t thread;
    running = pthread_create(&thread, NULL, breaks, NULL) == 0 && pthread_detach(thread) == 0;
    atexit(report);
  }
  pthread_mutex_unlock(&mutex);
  return result;
}

__attribute__((visibility("default"))) int close(int fd) {
  static int (*next)(int) = NULL;
  if (next == NULL) *(void**)&next = dlsym(RTLD_NEXT, "close");
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < count; ++i) {
    if (sockets[i] == fd) sockets[i--] = sockets[--count];
  }
  const int result = next(fd);
  pthread_mutex_unlock(&mutex);
  return result;
}
