// raw: what one SM moves by bulk copies: local and to a peer, by tile, stages, destinations
#include <cstdio>
#include <cstdlib>
#include <cstdint>
#include <cuda_runtime.h>
#include "tutti/device/cuda/bulk.h"
using namespace tutti::device;
#define CK(x) do{cudaError_t e=(x); if(e!=cudaSuccess){printf("ERR %s line %d: %s\n",#x,__LINE__,cudaGetErrorString(e));exit(1);} }while(0)
__global__ void tcopy(const char* src, char* d0, char* d1, size_t bytes, uint32_t tile, uint32_t stages, uint32_t fence_every){
  extern __shared__ __align__(128) char sm[]; __shared__ Gate bar[32];
  if(threadIdx.x) return;
  for(uint32_t i=0;i<stages;i++) bar[i].init(1); fence_bulk_shared();
  const char* s=src+blockIdx.x*bytes; d0+=blockIdx.x*bytes; if(d1) d1+=blockIdx.x*bytes;
  uint32_t n=bytes/tile, ld=0;
  for(; ld<stages-1 && ld<n; ld++){ bar[ld%stages].arrive_expecting(tile); load_bulk(sm+(ld%stages)*tile, s+(size_t)ld*tile, tile, bar[ld%stages]); }
  for(uint32_t k=0;k<n;k++){ uint32_t st=k%stages; bar[st].wait(k/stages);
    store_bulk(d0+(size_t)k*tile, sm+st*tile, tile); if(d1) store_bulk(d1+(size_t)k*tile, sm+st*tile, tile); end_store_group();
    if(fence_every && k%fence_every==fence_every-1){ wait_stores(); asm volatile("fence.acq_rel.sys;":::"memory"); }
    if(ld<n){ wait_stores_read<1>(); bar[ld%stages].arrive_expecting(tile); load_bulk(sm+(ld%stages)*tile, s+(size_t)ld*tile, tile, bar[ld%stages]); ld++; } }
  wait_stores();
}
__global__ void __launch_bounds__(512) lcopy(const uint4* s, uint4* d, size_t n){ s+=blockIdx.x*n; d+=blockIdx.x*n;
  for(size_t i=threadIdx.x;i+7*blockDim.x<n;i+=8*blockDim.x){ uint4 v[8];
#pragma unroll
    for(int u=0;u<8;u++) v[u]=__ldcs(s+i+u*blockDim.x);
#pragma unroll
    for(int u=0;u<8;u++) d[i+u*blockDim.x]=v[u]; } }

int main(){ size_t S=1ull<<30; char*a[2],*b[2],*c[2]; cudaStream_t q[2]; for(int g=0;g<2;g++){ CK(cudaSetDevice(g)); CK(cudaDeviceEnablePeerAccess(1-g,0)); CK(cudaMalloc(&a[g],S)); CK(cudaMalloc(&b[g],S)); CK(cudaMalloc(&c[g],S)); CK(cudaStreamCreate(&q[g])); CK(cudaFuncSetAttribute(tcopy,cudaFuncAttributeMaxDynamicSharedMemorySize,200*1024)); }
  cudaEvent_t e0,e1; CK(cudaSetDevice(0)); CK(cudaEventCreate(&e0)); CK(cudaEventCreate(&e1));
  auto time=[&](const char*n,size_t total,auto f){ for(int r=0;r<2;r++){ if(r){ CK(cudaSetDevice(0)); CK(cudaEventRecord(e0,q[0])); } for(int i=0;i<(r?4:1);i++) for(int g=0;g<2;g++){ CK(cudaSetDevice(g)); f(g); } if(r){ CK(cudaSetDevice(0)); CK(cudaEventRecord(e1,q[0])); } for(int g=0;g<2;g++){ CK(cudaSetDevice(g)); CK(cudaStreamSynchronize(q[g])); } } float ms; CK(cudaEventElapsedTime(&ms,e0,e1)); printf("%-60s %7.1f GB/s\n",n,total*4/ms/1e6); };
  char nm[99];
  for(int nb:{8,16,32,64,132}) { size_t per=(512<<20)/nb/65536*65536;
    sprintf(nm,"TMA both ways, %d blocks",nb); time(nm,per*nb,[&](int g){ tcopy<<<nb,32,128*1024,q[g]>>>(a[g],b[1-g],nullptr,per,16384,8,0); });
    sprintf(nm,"TMA both ways and a local copy of each, %d blocks",nb); time(nm,per*nb,[&](int g){ tcopy<<<nb,32,128*1024,q[g]>>>(a[g],b[1-g],c[g],per,16384,8,0); });
    sprintf(nm,"LSU both ways, %d blocks",nb); time(nm,per*nb,[&](int g){ lcopy<<<nb,512,0,q[g]>>>((uint4*)a[g],(uint4*)b[1-g],per/16); }); }
  sprintf(nm,"copy engines both ways"); time(nm,S/2,[&](int g){ CK(cudaMemcpyAsync(b[1-g],a[g],S/2,cudaMemcpyDeviceToDevice,q[g])); });
  return 0; }
