//! The scheduler: picks warps at random (by the seed), runs each for a while,
//! lets asynchronous copies finish in between, and reports deadlocks.

use super::*;
use crate::ir::{Flow, Gate};
use crate::shared::RESERVED;

pub enum Progress {
    Done,
    /// The slice is used up.
    More,
}

enum Gated {
    Go(u32),
    Park,
}

impl Machine {
    pub fn new(l: Arc<Launch>) -> Machine {
        let kinds = l.kernel.kinds.len();
        Machine {
            regs: std::ptr::null_mut(),
            preds: std::ptr::null_mut(),
            mask: 0,
            w: 0,
            frag: 0,
            pc: 0,
            warps: Vec::new(),
            ctas: Vec::new(),
            pending: Vec::new(),
            cluster_bar: barrier::ClusterBar::default(),
            next_actor: 0,
            next_op: 0,
            rng: 0,
            counts: Counts::new(kinds),
            last_alloc: 0,
            l,
        }
    }

    /// Set up the cluster with this linear index.
    pub fn start(&mut self, index: u32) {
        let l = self.l.clone();
        let (g, c, b) = (l.grid, l.cluster, l.block);
        let n = [g[0] / c[0], g[1] / c[1]];
        let cl = [index % n[0], index / n[0] % n[1], index / (n[0] * n[1])];
        self.rng = l.seed.wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(index as u64);
        let threads = b[0] * b[1] * b[2];
        let warps = threads.div_ceil(32);
        let ctas = (c[0] * c[1] * c[2]) as usize;
        let smem = RESERVED + l.kernel.static_smem.next_multiple_of(16) + l.dyn_smem;
        self.ctas.truncate(ctas);
        self.pending.clear();
        self.cluster_bar = barrier::ClusterBar::default();
        for rank in 0..ctas {
            let r = rank as u32;
            let id = [cl[0] * c[0] + r % c[0], cl[1] * c[1] + r / c[0] % c[1], cl[2] * c[2] + r / (c[0] * c[1])];
            if rank >= self.ctas.len() {
                self.ctas.push(Cta {
                    id,
                    rank: r,
                    first_warp: 0,
                    warps: warps as usize,
                    smem: Shared::new(smem),
                    bars: Vec::new(),
                    mbars: HashMap::new(),
                    flags: HashMap::new(),
                    tmem: Default::default(),
                });
            } else {
                self.ctas[rank].smem.reset();
            }
            let cta = &mut self.ctas[rank];
            (cta.id, cta.rank, cta.first_warp) = (id, r, rank * warps as usize);
            cta.bars = vec![barrier::Bar::default(); 16];
            cta.mbars.clear();
            cta.flags.clear();
            cta.tmem = Default::default();
        }
        let total = ctas * warps as usize;
        self.next_actor = total as u32 * async_copy::ACTORS;
        self.warps.truncate(total);
        for w in 0..total {
            let index = (w % warps as usize) as u32;
            let live = (threads - index * 32).min(32);
            let alive = if live == 32 { !0 } else { (1u32 << live) - 1 };
            let k = &l.kernel;
            let mut regs = self.warps.get_mut(w).map(|x| std::mem::take(&mut x.regs)).unwrap_or_default();
            regs.resize(k.slots as usize * 8, 0);
            self.init_consts(&mut regs, (w / warps as usize) as u32);
            let mut vc = Clocks::default();
            vc.set(w as u32 * async_copy::ACTORS, 1);
            let warp = Warp {
                cta: w / warps as usize,
                index,
                regs,
                preds: vec![0; k.preds as usize + 1],
                frags: vec![Frag { pc: 0, mask: alive, rec: NO_REC, state: State::Ready }],
                recs: Vec::new(),
                alive,
                local: vec![0; k.local_bytes as usize * 32],
                vc,
                pvc: Clocks::default(),
                clock: 1,
                groups: Default::default(),
                phases: HashMap::new(),
                steps: 0,
            };
            if w < self.warps.len() {
                self.warps[w] = warp;
            } else {
                self.warps.push(warp);
            }
        }
    }

    fn init_consts(&self, regs: &mut [u128], rank: u32) {
        use crate::ir::Const;
        let k = &self.l.kernel;
        let dynamic = RESERVED + k.static_smem.next_multiple_of(16);
        for &(c, slot, words) in &k.consts {
            let v = match c {
                Const::Bits(lo, hi) => lo as u128 | (hi as u128) << 64,
                Const::Shared(o) => ((rank << 24) as i64 + RESERVED as i64 + o) as u64 as u128,
                Const::Dynamic(o) => ((rank << 24) as i64 + dynamic as i64 + o) as u64 as u128,
            };
            let row = &mut regs[slot as usize * 8..][..8 * words as usize];
            match words {
                1 => row.fill((v as u32) as u128 * 0x0000_0001_0000_0001_0000_0001_0000_0001),
                2 => row.fill((v as u64) as u128 * 0x0000_0000_0000_0001_0000_0000_0000_0001),
                _ => row.fill(v),
            }
        }
    }

    /// Run for about `slice` warp instructions.
    pub fn run(&mut self, mut slice: i64) -> Result<Progress, Box<Fault>> {
        loop {
            if self.l.stop.load(std::sync::atomic::Ordering::Relaxed) {
                return Ok(Progress::Done);
            }
            if !self.pending.is_empty() && self.rand() & 3 == 0 {
                self.finish_random(false)?;
            }
            let n = self.warps.len();
            let start = (self.rand() % n as u64) as usize;
            let now = self.next_op;
            let ready = |w: &Warp| w.frags.iter().any(|f| Self::runnable(f, now));
            let Some(w) = (0..n).map(|x| (start + x) % n).find(|&x| ready(&self.warps[x])) else {
                let done = self.warps.iter().all(|w| w.done());
                if self.finish_random(done)? {
                    continue;
                }
                if done {
                    self.at_end()?;
                    return Ok(Progress::Done);
                }
                return Err(self.deadlock());
            };
            let quantum = 32 + (self.rand() % 480) as i64;
            let used = quantum - self.run_warp(w, quantum)?;
            slice -= used.max(1);
            if slice <= 0 {
                return Ok(Progress::More);
            }
        }
    }

    fn runnable(f: &Frag, now: u64) -> bool {
        match f.state {
            State::Ready => true,
            State::Poll(_, seen) => seen != now,
            _ => false,
        }
    }

    /// Something changed that a polling lane may wait for.
    pub fn event(&mut self) {
        self.next_op += 1;
    }

    /// Returns what is left of the quantum.
    fn run_warp(&mut self, w: usize, mut quantum: i64) -> Result<i64, Box<Fault>> {
        let l = self.l.clone();
        let code = &l.kernel.code[..];
        self.w = w;
        self.regs = self.warps[w].regs.as_mut_ptr() as *mut u32;
        self.preds = self.warps[w].preds.as_mut_ptr();
        'pick: loop {
            let now = self.next_op;
            let n = self.warps[w].frags.len();
            if n == 0 || quantum <= 0 {
                return Ok(quantum);
            }
            let start = if n == 1 { 0 } else { (self.rand() % n as u64) as usize };
            let Some(f) = (0..n).map(|x| (start + x) % n).find(|&x| Self::runnable(&self.warps[w].frags[x], now)) else {
                return Ok(quantum);
            };
            self.frag = f;
            let fr = &mut self.warps[w].frags[f];
            fr.state = State::Ready;
            let (mut pc, whole, rec) = (fr.pc, fr.mask, fr.rec);
            let join = if rec == NO_REC { u32::MAX } else { self.warps[w].recs[rec as usize].pc };
            // A warp in pieces switches between them often.
            let mut turn = if n == 1 { i64::MAX } else { 16 };
            loop {
                if pc == join {
                    self.warps[w].frags[f].pc = pc;
                    self.arrive();
                    continue 'pick;
                }
                if quantum <= 0 || turn <= 0 {
                    self.warps[w].frags[f].pc = pc;
                    continue 'pick;
                }
                quantum -= 1;
                turn -= 1;
                let i = &code[pc as usize];
                let mut mask = whole;
                if i.guard != 0 {
                    let p = self.pred(i.guard - 1);
                    mask &= if i.guard_not { !p } else { p };
                    if mask == 0 {
                        pc += 1;
                        continue;
                    }
                }
                self.mask = mask;
                self.pc = pc;
                if i.gate != Gate::None {
                    self.warps[w].frags[f].pc = pc;
                    match self.gate(i, mask)? {
                        Gated::Go(m) if m == mask => {}
                        Gated::Go(m) => {
                            // Several pieces run this instruction together.
                            self.mask = m;
                            self.count(i, m);
                            let flow = (i.exec)(self, i)?;
                            self.after_union(i, flow)?;
                            continue 'pick;
                        }
                        Gated::Park => continue 'pick,
                    }
                }
                self.count(i, mask);
                match (i.exec)(self, i)? {
                    Flow::Next => pc += 1,
                    Flow::Branch => {
                        if mask == whole {
                            pc = i.imm as u32;
                        } else {
                            self.split(&[(i.imm as u32, mask), (pc + 1, whole & !mask)], i.join);
                            continue 'pick;
                        }
                    }
                    Flow::Control => continue 'pick,
                    Flow::Exit => {
                        self.warps[w].frags[f].pc = pc;
                        self.retire(mask);
                        self.barrier_recheck(w)?;
                        continue 'pick;
                    }
                    Flow::Retry => {
                        self.warps[w].frags[f].pc = pc;
                        continue 'pick;
                    }
                    Flow::Wait => {
                        self.warps[w].frags[f].pc = pc;
                        continue 'pick;
                    }
                    Flow::Yield => {
                        self.warps[w].frags[f].pc = pc + 1;
                        return Ok(quantum);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn count(&mut self, i: &Inst, mask: u32) {
        let c = &mut self.counts.kinds[i.kind as usize];
        c.warps += 1;
        c.lanes += mask.count_ones() as u64;
    }

    fn gate(&mut self, i: &Inst, active: u32) -> Result<Gated, Box<Fault>> {
        let alive = self.warps[self.w].alive;
        let need = match i.gate {
            Gate::Warp => alive,
            _ => {
                let named = self.row::<u32>(i.a[4])[active.trailing_zeros() as usize];
                if active & !named != 0 {
                    let lane = (active & !named).trailing_zeros();
                    return Err(
                        self.fault(i, format!("lane {lane} executes a .sync instruction whose member mask {named:#010x} leaves it out"))
                    );
                }
                named & alive
            }
        };
        if need & !active == 0 {
            return Ok(Gated::Go(active));
        }
        let anywhere = i.gate == Gate::Anywhere;
        let (w, f, pc) = (self.w, self.frag, self.pc);
        self.warps[w].frags[f].state = State::Gate { need, active, anywhere };
        let same = |x: &Frag| match x.state {
            State::Gate { need: n, active: a, anywhere: y } if n == need && y == anywhere && (anywhere || x.pc == pc) => Some(a),
            _ => None,
        };
        let union = self.warps[w].frags.iter().filter_map(same).fold(0, |u, a| u | a);
        if need & !union != 0 {
            return Ok(Gated::Park);
        }
        Ok(Gated::Go(union))
    }

    /// After an instruction that several pieces of the warp ran together.
    fn after_union(&mut self, i: &Inst, flow: Flow) -> Result<(), Box<Fault>> {
        let (w, pc, anywhere) = (self.w, self.pc, i.gate == Gate::Anywhere);
        let me = self.warps[w].frags[self.frag].state.clone();
        let mask = self.mask;
        for f in &mut self.warps[w].frags {
            if f.mask & mask == 0 || !(anywhere || f.pc == pc) {
                continue;
            }
            match flow {
                Flow::Next | Flow::Yield => {
                    f.pc += 1;
                    f.state = State::Ready;
                }
                Flow::Wait | Flow::Retry => f.state = me.clone(),
                _ => return Err(Box::new(Fault { what: "internal: control flow in a gated instruction".into(), ..*self.fault(i, "") })),
            }
        }
        Ok(())
    }

    pub fn set_state(&mut self, s: State) {
        let (w, f) = (self.w, self.frag);
        self.warps[w].frags[f].state = s;
    }

    /// Wait until something happens in the cluster, then run the instruction again.
    pub fn poll(&mut self, why: &'static str) -> crate::ir::Flow {
        let now = self.next_op;
        self.set_state(State::Poll(why, now));
        Flow::Retry
    }

    /// The launch has taken too long: a loop without end, or a wait for a block
    /// that never comes.
    pub fn timed_out(&mut self, seconds: u64) -> Box<Fault> {
        let mut f = self.stuck(&format!("the launch has run for {seconds} s (NVFP4_EMU_TIMEOUT)"));
        f.code = 702;
        f
    }

    fn deadlock(&mut self) -> Box<Fault> {
        self.stuck("deadlock: no warp of the cluster can go on")
    }

    fn stuck(&mut self, why: &str) -> Box<Fault> {
        let l = self.l.clone();
        let mut lines = Vec::new();
        let mut first = None;
        for (w, warp) in self.warps.iter().enumerate() {
            for f in &warp.frags {
                let i = &l.kernel.code[f.pc as usize];
                let why = match &f.state {
                    State::Gate { need, active, .. } => format!("waits for lanes {:#010x} of its warp", need & !active),
                    State::Barrier(b) => {
                        let bar = &self.ctas[warp.cta].bars[*b as usize];
                        format!("waits at block barrier {b} ({} of {} threads arrived)", bar.arrived, bar.expected)
                    }
                    State::Cluster => "waits at the cluster barrier".to_string(),
                    State::Poll(why, _) => format!("waits for {why}"),
                    State::Ready => "ready".to_string(),
                };
                first.get_or_insert((w, f.pc, f.mask));
                if lines.len() < 40 {
                    let c = self.ctas[warp.cta].id;
                    lines.push(format!(
                        "\n    block ({},{},{}) warp {} lanes {:#010x} {} at PTX line {}",
                        c[0], c[1], c[2], warp.index, f.mask, why, i.line
                    ));
                }
            }
        }
        let Some((w, pc, mask)) = first else { unreachable!("a deadlock has a waiting warp") };
        (self.w, self.mask) = (w, mask);
        let what = format!("{why}{}", lines.concat());
        self.fault(&l.kernel.code[pc as usize], what)
    }

    /// Checks when all threads of the cluster have left.
    fn at_end(&mut self) -> Result<(), Box<Fault>> {
        for c in 0..self.ctas.len() {
            if let Some(what) = self.ctas[c].tmem.leaked() {
                self.w = self.ctas[c].first_warp;
                self.mask = 1;
                let last = self.l.kernel.code.len() - 1;
                let l = self.l.clone();
                return Err(self.fault(&l.kernel.code[last], what));
            }
        }
        Ok(())
    }
}
