// One 128x128 NVFP4 tile, K = nkb*256, cta_group::1, sm_100a.
#include <cuda.h>
#include <cstdint>
#define DI __device__ __forceinline__
DI uint32_t s32(const void* p){ return (uint32_t)__cvta_generic_to_shared(p); }
DI void mb_init(uint32_t b,uint32_t n){ asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"::"r"(b),"r"(n)); }
DI void mb_tx(uint32_t b,uint32_t n){ asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"::"r"(b),"r"(n):"memory"); }
DI void mb_wait(uint32_t b,uint32_t ph){ asm volatile("{.reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra W;}"::"r"(b),"r"(ph):"memory"); }
DI void tma2(uint32_t d,const CUtensorMap* m,int x,int y,uint32_t b){ asm volatile("cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0],[%1,{%2,%3}],[%4];"::"r"(d),"l"(m),"r"(x),"r"(y),"r"(b):"memory"); }
DI void bulk(uint32_t d,const void* s,uint32_t n,uint32_t b){ asm volatile("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0],[%1],%2,[%3];"::"r"(d),"l"(s),"r"(n),"r"(b):"memory"); }
DI uint64_t sdesc(uint32_t a,uint32_t lbo,uint32_t sbo,uint32_t sw){ return (uint64_t)((a&0x3FFFF)>>4)|((uint64_t)((lbo>>4)&0x3FFF)<<16)|((uint64_t)((sbo>>4)&0x3FFF)<<32)|(1ull<<46)|((uint64_t)sw<<61); }
extern "C" __global__ void __launch_bounds__(128) tile(const __grid_constant__ CUtensorMap ma,const __grid_constant__ CUtensorMap mb,const uint8_t* sfa,const uint8_t* sfb,float* D,int nkb){
  extern __shared__ __align__(1024) uint8_t sm[]; uint8_t* A=sm; uint8_t* B=sm+16384; uint8_t* SA=sm+32768; uint8_t* SB=SA+2048;
  __shared__ uint64_t full,done; __shared__ uint32_t tm; int w=threadIdx.x>>5;
  if(w==0) asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 256; tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"::"r"(s32(&tm)):"memory");
  if(threadIdx.x==0){ mb_init(s32(&full),1); mb_init(s32(&done),1); asm volatile("fence.mbarrier_init.release.cluster;"); }
  asm volatile("tcgen05.fence::before_thread_sync;"); __syncthreads(); asm volatile("tcgen05.fence::after_thread_sync;");
  uint32_t acc=tm, tsa=tm+128, tsb=tm+144; const uint32_t idesc=(1u<<7)|(1u<<10)|((128u>>3)<<17)|((128u>>7)<<27);
  for(int kb=0;kb<nkb;kb++){
    if(threadIdx.x==0){
      mb_tx(s32(&full),16384*2+2048*2); tma2(s32(A),&ma,kb*256,0,s32(&full)); tma2(s32(B),&mb,kb*256,0,s32(&full));
      bulk(s32(SA),sfa+(size_t)kb*2048,2048,s32(&full)); bulk(s32(SB),sfb+(size_t)kb*2048,2048,s32(&full));
      mb_wait(s32(&full),kb&1);
      for(int j=0;j<4;j++){ // 4 SF tiles of 512 B -> 4 columns each
        asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;"::"r"(tsa+4*j),"l"(sdesc(s32(SA)+512*j,16,128,0)):"memory");
        asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;"::"r"(tsb+4*j),"l"(sdesc(s32(SB)+512*j,16,128,0)):"memory"); }
      for(int j=0;j<4;j++){ uint32_t en=(kb|j)!=0;
        asm volatile("{.reg .pred p; setp.ne.u32 p,%6,0; tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16 [%0], %1, %2, %3, [%4], [%5], p;}"
          ::"r"(acc),"l"(sdesc(s32(A)+32*j,16,1024,2)),"l"(sdesc(s32(B)+32*j,16,1024,2)),"r"(idesc),"r"(tsa+4*j),"r"(tsb+4*j),"r"(en):"memory"); }
      asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"::"r"(s32(&done)):"memory");
      mb_wait(s32(&done),kb&1);
    }
  }
  __syncthreads(); // the parity below is ambiguous before the last phase has begun
  if(nkb) mb_wait(s32(&done),(nkb-1)&1); asm volatile("tcgen05.fence::after_thread_sync;");
  for(int c=0;c<128;c+=8){ uint32_t r[8];
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x8.b32 {%0,%1,%2,%3,%4,%5,%6,%7},[%8]; tcgen05.wait::ld.sync.aligned;":"=r"(r[0]),"=r"(r[1]),"=r"(r[2]),"=r"(r[3]),"=r"(r[4]),"=r"(r[5]),"=r"(r[6]),"=r"(r[7]):"r"(acc+((uint32_t)(32*w)<<16)+c));
    for(int i=0;i<8;i++) D[(size_t)threadIdx.x*128+c+i]=__uint_as_float(r[i]); }
  asm volatile("tcgen05.fence::before_thread_sync;"); __syncthreads();
  if(w==0) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 256;"::"r"(tm));
}
