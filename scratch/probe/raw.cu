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
int main(){ CK(cudaSetDevice(0)); CK(cudaDeviceEnablePeerAccess(1,0)); size_t S=1ull<<30; char*a,*b,*c; CK(cudaMalloc(&a,S)); CK(cudaMalloc(&b,S)); CK(cudaSetDevice(1)); CK(cudaMalloc(&c,S)); CK(cudaSetDevice(0));
  CK(cudaFuncSetAttribute(tcopy,cudaFuncAttributeMaxDynamicSharedMemorySize,200*1024)); cudaEvent_t e0,e1; CK(cudaEventCreate(&e0)); CK(cudaEventCreate(&e1));
  auto time=[&](const char*n,size_t total,auto f){ f(); CK(cudaEventRecord(e0)); for(int i=0;i<3;i++) f(); CK(cudaEventRecord(e1)); CK(cudaEventSynchronize(e1)); float ms; CK(cudaEventElapsedTime(&ms,e0,e1)); printf("%-60s %7.1f GB/s\n",n,total*3/ms/1e6); };
  char nm[99];
  for(int nb:{1,8,16}) for(uint32_t kb:{8,16}) for(uint32_t st:{4,8}) { size_t per=16<<20;
    auto go=[&](const char*w,char*d0,char*d1,uint32_t f){ sprintf(nm,"TMA %s %d blocks tile %uK stages %u fence %u",w,nb,kb,st,f); time(nm,per*nb,[&]{ tcopy<<<nb,32,st*kb*1024>>>(a,d0,d1,per,kb*1024,st,f); }); };
    go("local",b,nullptr,0); go("peer",c,nullptr,0); go("both",b,c,0); if(kb==16&&st==8){ go("peer",c,nullptr,3); go("peer",c,nullptr,12);} }
  for(int nb:{1,8,16}) for(int th:{256,512}){ size_t per=16<<20; sprintf(nm,"LSU local %d blocks %d threads",nb,th); time(nm,per*nb,[&]{ lcopy<<<nb,th>>>((uint4*)a,(uint4*)b,per/16); }); sprintf(nm,"LSU peer %d blocks %d threads",nb,th); time(nm,per*nb,[&]{ lcopy<<<nb,th>>>((uint4*)a,(uint4*)c,per/16); }); }
  CK(cudaDeviceSynchronize()); return 0; }
