//! Exact counts of what a launch did.

use std::sync::Mutex;

#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct KindCount {
    /// Warp instructions issued.
    pub warps: u64,
    /// Thread instructions executed.
    pub lanes: u64,
    /// Bytes of global memory; lanes of a warp that load the same address count once.
    pub read: u64,
    pub written: u64,
    /// 32-byte sectors of global memory touched, a warp instruction at a time.
    pub sectors: u64,
    /// Extra passes that shared-memory bank conflicts cost.
    pub conflicts: u64,
}

#[derive(Clone, Default, Debug)]
pub struct Counts {
    pub kinds: Vec<KindCount>,
    /// Matrix instructions (a warp's, or a tcgen05 thread's).
    pub mma: u64,
}

impl Counts {
    pub fn new(kinds: usize) -> Counts {
        Counts { kinds: vec![KindCount::default(); kinds], mma: 0 }
    }

    pub fn add(&mut self, o: &Counts) {
        for (a, b) in self.kinds.iter_mut().zip(&o.kinds) {
            a.warps += b.warps;
            a.lanes += b.lanes;
            a.read += b.read;
            a.written += b.written;
            a.sectors += b.sectors;
            a.conflicts += b.conflicts;
        }
        self.mma += o.mma;
    }
}

/// The record of one kernel launch.
#[derive(Clone, Debug)]
pub struct LaunchRecord {
    pub kernel: String,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub kinds: Vec<(String, KindCount)>,
    pub mma: u64,
    pub seconds: f64,
}

impl LaunchRecord {
    pub fn read(&self) -> u64 {
        self.kinds.iter().map(|k| k.1.read).sum()
    }
    pub fn written(&self) -> u64 {
        self.kinds.iter().map(|k| k.1.written).sum()
    }
    pub fn instructions(&self) -> u64 {
        self.kinds.iter().map(|k| k.1.warps).sum()
    }
    pub fn conflicts(&self) -> u64 {
        self.kinds.iter().map(|k| k.1.conflicts).sum()
    }

    /// The table printed with `NVFP4_EMU_COUNTERS=1`.
    pub fn table(&self) -> String {
        let mut s =
            format!(
            "emulator: kernel {} grid {:?} block {:?}: {} warp instructions, {} B read, {} B written, {} mma, {} bank conflicts, {:.3} s\n",
            self.kernel, self.grid, self.block, self.instructions(), self.read(), self.written(), self.mma, self.conflicts(), self.seconds
        );
        let mut rows: Vec<_> = self.kinds.iter().filter(|k| k.1.warps != 0).collect();
        rows.sort_by_key(|k| std::cmp::Reverse(k.1.warps));
        s += &format!(
            "  {:<44} {:>12} {:>14} {:>12} {:>12} {:>10} {:>10}\n",
            "instruction", "warps", "threads", "read B", "written B", "sectors", "conflicts"
        );
        for (name, k) in rows {
            s += &format!(
                "  {:<44} {:>12} {:>14} {:>12} {:>12} {:>10} {:>10}\n",
                name, k.warps, k.lanes, k.read, k.written, k.sectors, k.conflicts
            );
        }
        s
    }
}

static LOG: Mutex<Vec<LaunchRecord>> = Mutex::new(Vec::new());

pub fn record(r: LaunchRecord) {
    if std::env::var_os("NVFP4_EMU_COUNTERS").is_some_and(|v| v == "1") {
        eprint!("{}", r.table());
    }
    let mut g = LOG.lock().unwrap_or_else(|e| e.into_inner());
    if g.len() >= 4096 {
        g.remove(0);
    }
    g.push(r);
}

/// Take all records since the last call.
pub fn take() -> Vec<LaunchRecord> {
    std::mem::take(&mut *LOG.lock().unwrap_or_else(|e| e.into_inner()))
}
