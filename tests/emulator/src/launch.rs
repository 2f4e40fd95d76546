//! One kernel launch: checks the shape, spreads the clusters over host threads.

use crate::arch::{self, Arch};
use crate::counters::{self, Counts, LaunchRecord};
use crate::exec::run::Progress;
use crate::exec::{Launch, Machine, Strict};
use crate::fault::Fault;
use crate::ir::Kernel;
use crate::mem::memory;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Clone)]
pub struct Request {
    pub kernel: Arc<Kernel>,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    pub dyn_smem: u32,
    pub params: Vec<u8>,
}

/// Why a request cannot run, in the driver's terms.
#[derive(Debug)]
pub struct Refusal {
    pub code: i32,
    pub why: String,
}

pub fn env_u64(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn off(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|v| v == "0")
}

/// Largest dynamic shared memory a function may have asked for is `allowed`.
pub fn check(r: &Request, a: &Arch, allowed: u32) -> Result<(), Refusal> {
    let refuse = |why: String| Err(Refusal { code: 1, why });
    let threads = r.block.iter().map(|&b| b as u64).product::<u64>();
    if threads == 0 || threads > 1024 || r.block[2] > 64 {
        return refuse(format!("block {:?}: 1 to 1024 threads, at most 64 in z", r.block));
    }
    if r.grid.contains(&0) || r.grid[0] > i32::MAX as u32 || r.grid[1] > 65535 || r.grid[2] > 65535 {
        return refuse(format!("grid {:?} is out of range", r.grid));
    }
    if let Some(m) = r.kernel.maxntid {
        let max = m.iter().map(|&x| x as u64).product::<u64>();
        if threads > max {
            return refuse(format!("block {:?} has more threads than the kernel's launch bound {max}", r.block));
        }
    }
    if let Some(q) = r.kernel.reqntid {
        if q != r.block {
            return refuse(format!("block {:?}, but the kernel requires {q:?}", r.block));
        }
    }
    if let Some(q) = r.kernel.reqcluster {
        if q != r.cluster {
            return refuse(format!("cluster {:?}, but the kernel requires {q:?}", r.cluster));
        }
    }
    let size = r.cluster.iter().product::<u32>();
    if size == 0 || size > 16 || (0..3).any(|d| r.cluster[d] == 0 || !r.grid[d].is_multiple_of(r.cluster[d])) {
        return refuse(format!("cluster {:?} does not divide grid {:?} or has more than 16 blocks", r.cluster, r.grid));
    }
    if size > 1 && a.cc < 90 {
        return refuse(format!("clusters need sm_90; this is {}", a.name));
    }
    if r.dyn_smem > allowed {
        return refuse(format!("{} bytes of dynamic shared memory; the function may use {allowed}", r.dyn_smem));
    }
    if r.dyn_smem + r.kernel.static_smem > a.smem_optin {
        return refuse(format!("{} bytes of shared memory exceed the chip's {}", r.dyn_smem + r.kernel.static_smem, a.smem_optin));
    }
    Ok(())
}

/// Run to the end. The kernel's effects are in memory when this returns.
pub fn run(r: &Request) -> Result<LaunchRecord, Box<Fault>> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let begin = std::time::Instant::now();
    let clusters = (0..3).map(|d| r.grid[d] / r.cluster[d]).product::<u32>();
    let seed = env_u64("NVFP4_EMU_SEED").unwrap_or(0).wrapping_mul(1_000_003).wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed));
    let strict = Strict {
        uninit: !off("NVFP4_EMU_UNINIT"),
        races: !off("NVFP4_EMU_RACES"),
        proxy: !off("NVFP4_EMU_PROXY"),
        fences: !off("NVFP4_EMU_FENCES"),
    };
    let l = Arc::new(Launch {
        kernel: r.kernel.clone(),
        arch: arch::current(),
        grid: r.grid,
        block: r.block,
        cluster: r.cluster,
        dyn_smem: r.dyn_smem,
        params: r.params.clone(),
        allocs: memory().snapshot(),
        seed,
        strict,
        next_cluster: AtomicU32::new(0),
        stop: AtomicBool::new(false),
    });
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let threads = env_u64("NVFP4_EMU_THREADS").unwrap_or(cores).clamp(1, clusters as u64);
    let total = Mutex::new(Counts::new(r.kernel.kinds.len()));
    let fault: Mutex<Option<Box<Fault>>> = Mutex::new(None);
    let work = || {
        let counts = match worker(&l, clusters) {
            Ok(c) => c,
            Err(f) => {
                l.stop.store(true, Ordering::Relaxed);
                let mut g = fault.lock().unwrap_or_else(|e| e.into_inner());
                g.get_or_insert(f);
                return;
            }
        };
        total.lock().unwrap_or_else(|e| e.into_inner()).add(&counts);
    };
    if threads == 1 {
        work();
    } else {
        std::thread::scope(|s| {
            for _ in 0..threads {
                s.spawn(work);
            }
        });
    }
    if let Some(f) = fault.into_inner().unwrap_or_else(|e| e.into_inner()) {
        return Err(f);
    }
    let total = total.into_inner().unwrap_or_else(|e| e.into_inner());
    let rec = LaunchRecord {
        kernel: r.kernel.name.clone(),
        grid: r.grid,
        block: r.block,
        kinds: r.kernel.kinds.iter().cloned().zip(total.kinds).collect(),
        mma: total.mma,
        seconds: begin.elapsed().as_secs_f64(),
    };
    counters::record(rec.clone());
    Ok(rec)
}

/// Instructions a cluster runs before another one of this thread gets its turn.
/// Only kernels whose blocks wait for each other ever use it up.
const SLICE: i64 = 20_000_000;

fn worker(l: &Arc<Launch>, clusters: u32) -> Result<Counts, Box<Fault>> {
    let begin = std::time::Instant::now();
    let patience = env_u64("NVFP4_EMU_TIMEOUT").unwrap_or(600);
    let mut total = Counts::new(l.kernel.kinds.len());
    let mut resident: Vec<Box<Machine>> = Vec::new();
    let mut idle: Option<Box<Machine>> = None;
    let limit = (l.arch.sms as usize / 2).max(1);
    let mut turn = 0;
    loop {
        // All resident clusters have had a turn without finishing: start one more.
        if turn >= resident.len() && resident.len() < limit {
            let c = l.next_cluster.fetch_add(1, Ordering::Relaxed);
            if c < clusters {
                let mut m = idle.take().unwrap_or_else(|| Box::new(Machine::new(l.clone())));
                m.start(c);
                resident.push(m);
            } else {
                l.next_cluster.store(clusters, Ordering::Relaxed);
            }
        }
        if resident.is_empty() {
            break;
        }
        if turn >= resident.len() {
            turn = 0;
        }
        match resident[turn].run(SLICE)? {
            Progress::Done => idle = Some(resident.swap_remove(turn)),
            Progress::More => {
                if begin.elapsed().as_secs() >= patience {
                    return Err(resident[turn].timed_out(patience));
                }
                turn += 1;
            }
        }
        if let Some(m) = &mut idle {
            total.add(&m.counts);
            m.counts = Counts::new(l.kernel.kinds.len());
        }
    }
    Ok(total)
}
