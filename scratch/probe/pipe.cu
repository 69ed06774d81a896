#ifndef XSLOTS
#define XSLOTS 8
#endif
// pipe: the Simple kernel alone, two GPUs of one process, hand-made programs
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include <thread>
#include "tutti/device/cuda/slices.h"
using namespace tutti::device;
#define CK(x) do{cudaError_t e=(x); if(e!=cudaSuccess){printf("ERR %s line %d: %s\n",#x,__LINE__,cudaGetErrorString(e));exit(1);} }while(0)
static tutti_cuda_step step(int src,int sc,int dst,int dc,int rb,int rc,int sb,int scn,int flags,int st,int rst){ tutti_cuda_step s{}; s.source=src; s.destination=dst; s.source_chunk=sc; s.destination_chunk=dc; s.recv_begin=rb; s.recv_count=rc; s.send_begin=sb; s.send_count=scn; s.flags=flags; s.stage=st; s.recv_stage=rst; return s; }
int main(){ size_t S=512ull<<20; char* in[2],*out[2]; uint8_t* arena[2]; tutti_cuda_track* tr[2]; tutti_cuda_control* ctl; cudaStream_t q[2]; CK(cudaHostAlloc(&ctl,sizeof *ctl,cudaHostAllocPortable|cudaHostAllocMapped)); memset(ctl,0,sizeof *ctl);
  size_t A=256<<20; for(int g=0;g<2;g++){ CK(cudaSetDevice(g)); CK(cudaDeviceEnablePeerAccess(1-g,0)); CK(cudaMalloc(&in[g],S)); CK(cudaMalloc(&out[g],S)); CK(cudaMalloc(&arena[g],A)); CK(cudaMemset(arena[g],0,A)); CK(cudaMalloc(&tr[g],4096)); CK(cudaStreamCreate(&q[g])); CK(cudaFuncSetAttribute(run_slices<float,Sum>,cudaFuncAttributeMaxDynamicSharedMemorySize,kStagesBytes)); CK(cudaDeviceSynchronize()); }
  printf("stages %u x %uK storers %u posted %u\n",kStages,kStageBytes>>10,kStorers,kPosted);
  for(const char* what : {"oneway","bothways","allgather","twoshot"}) for(uint32_t ctas:{16u,32u,64u}) for(uint32_t slotK:{32u,64u}) { if (slotK*ctas*16>(63u<<10)) continue;
    for(int g=0;g<2;g++){ CK(cudaSetDevice(g)); CK(cudaMemset(arena[g],0,1<<20)); CK(cudaMemset(tr[g],0,4096)); CK(cudaDeviceSynchronize()); }
    uint32_t slots=XSLOTS, slices=0; std::vector<tutti_cuda_launch> L(2); size_t block=S/2; double wire=0;
    for(int g=0;g<2;g++){ tutti_cuda_launch& l=L[g]; memset(&l,0,sizeof l); auto&p=l.program; p.chunks=1; p.messages=1; p.stages=2; p.lag=1; uint8_t o=1-g; 
      auto peer=[&](int i,int m,int b,int c,int lag){ p.peers[i]={o,(uint8_t)m,(uint8_t)b,(uint8_t)c,(uint8_t)lag}; };
      const int I=TUTTI_BUFFER_INPUT,O=TUTTI_BUFFER_OUTPUT,N=TUTTI_BUFFER_NONE; slices=XSLOTS/2;
      if(!strcmp(what,"oneway")){ block=S; p.step_count=1; if(g==0){ p.steps[0]=step(I,0,N,0,0,0,0,1,TUTTI_STEP_SCATTER,0,0); peer(0,0,0,0,0);} else { p.steps[0]=step(N,0,N,0,0,1,0,0,TUTTI_STEP_GATHER,1,1); peer(0,0,0,0,1);} wire=S; }
      if(!strcmp(what,"bothways")){ block=S; p.step_count=1; p.steps[0]=step(I,0,N,0,1,1,0,1,TUTTI_STEP_GATHER,0,1); peer(0,0,0,0,0); peer(1,0,0,0,1); wire=S; }
      if(!strcmp(what,"allgather")){ block=S/2; p.step_count=1; p.steps[0]=step(I,0,O,0,1,1,0,1,TUTTI_STEP_GATHER,0,1); p.steps[0].destination_block=g; peer(0,0,0,0,0); peer(1,0,o,0,1); wire=S/2; }
      if(!strcmp(what,"twoshot")){ block=S; slices=XSLOTS/4; p.chunks=2; p.messages=2; p.stages=3; p.step_count=3; p.steps[0]=step(I,o,N,0,0,0,0,1,TUTTI_STEP_SCATTER,0,0); peer(0,0,0,o,0); p.steps[1]=step(I,g,O,g,1,1,2,1,0,1,1); peer(1,0,0,0,1); peer(2,1,0,0,0); p.steps[2]=step(N,0,N,0,3,1,0,0,TUTTI_STEP_GATHER,2,2); peer(3,1,0,o,1); wire=S; }
      l.data_type=0; l.cta_count=ctas; l.rank=g; l.rank_count=2; l.input=(uint8_t*)in[g]; l.output=(uint8_t*)out[g]; l.block_bytes=block; size_t slot=slotK<<10; l.cut.part=block/ctas; size_t loop=p.chunks*slot*slices; l.cut.loops=(l.cut.part+loop-1)/loop; l.cut.chunk=((l.cut.part+(size_t)l.cut.loops*p.chunks-1)/(l.cut.loops*p.chunks)+15)/16*16; size_t before=(size_t)(l.cut.loops-1)*p.chunks*l.cut.chunk; l.cut.last_chunk=((l.cut.part-before+p.chunks-1)/p.chunks+15)/16*16; l.cut.slices=slices; l.cut.slice=((l.cut.chunk+slices-1)/slices+15)/16*16; l.cut.messages=(l.cut.loops+p.stages-1)*slices*p.messages;
      l.slot_count=slots; l.slot_stride=slot; l.slots_offset=1<<20; l.mailboxes_offset=0; l.arenas[0]=arena[0]; l.arenas[1]=arena[1]; l.tracks=tr[g]; l.control=ctl; l.timeout_ns=2000000000ull; }
    auto go=[&](int n){ for(int k=0;k<n;k++) for(int g=0;g<2;g++){ CK(cudaSetDevice(g)); void*args[]={&L[g]}; CK(cudaLaunchKernel((const void*)run_slices<float,Sum>,dim3(ctas),dim3(kPipelineThreads),args,kStagesBytes,q[g])); } };
    cudaEvent_t e0,e1; CK(cudaSetDevice(0)); CK(cudaEventCreate(&e0)); CK(cudaEventCreate(&e1)); go(2); for(int g=0;g<2;g++){ CK(cudaSetDevice(g)); CK(cudaStreamSynchronize(q[g])); }
    CK(cudaSetDevice(0)); CK(cudaEventRecord(e0,q[0])); go(4); CK(cudaSetDevice(0)); CK(cudaEventRecord(e1,q[0])); for(int g=0;g<2;g++){ CK(cudaSetDevice(g)); CK(cudaStreamSynchronize(q[g])); } float ms; CK(cudaEventElapsedTime(&ms,e0,e1));
    printf("  %-10s ctas %2u slot %3uK  %7.1f GB/s of wire%s\n",what,ctas,slotK,wire*4/ms/1e6,ctl->fault?" FAULT":""); if(ctl->fault) return 1; fflush(stdout); }
  return 0; }
