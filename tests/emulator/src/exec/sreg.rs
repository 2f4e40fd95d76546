//! Special registers.

use super::*;
use crate::ir::{Exec, Flow};

pub const NAMES: &[(&str, u32)] = &[
    ("%tid.x", 0),
    ("%tid.y", 1),
    ("%tid.z", 2),
    ("%ntid.x", 3),
    ("%ntid.y", 4),
    ("%ntid.z", 5),
    ("%ctaid.x", 6),
    ("%ctaid.y", 7),
    ("%ctaid.z", 8),
    ("%nctaid.x", 9),
    ("%nctaid.y", 10),
    ("%nctaid.z", 11),
    ("%laneid", 12),
    ("%warpid", 13),
    ("%nwarpid", 14),
    ("%smid", 15),
    ("%nsmid", 16),
    ("%gridid", 17),
    ("%lanemask_eq", 18),
    ("%lanemask_le", 19),
    ("%lanemask_lt", 20),
    ("%lanemask_ge", 21),
    ("%lanemask_gt", 22),
    ("%clock", 23),
    ("%clock64", 24),
    ("%clock_hi", 25),
    ("%globaltimer", 26),
    ("%globaltimer_lo", 27),
    ("%globaltimer_hi", 28),
    ("%clusterid.x", 29),
    ("%clusterid.y", 30),
    ("%clusterid.z", 31),
    ("%nclusterid.x", 32),
    ("%nclusterid.y", 33),
    ("%nclusterid.z", 34),
    ("%cluster_ctaid.x", 35),
    ("%cluster_ctaid.y", 36),
    ("%cluster_ctaid.z", 37),
    ("%cluster_nctaid.x", 38),
    ("%cluster_nctaid.y", 39),
    ("%cluster_nctaid.z", 40),
    ("%cluster_ctarank", 41),
    ("%cluster_nctarank", 42),
    ("%is_explicit_cluster", 43),
    ("%dynamic_smem_size", 44),
    ("%total_smem_size", 45),
    ("%aggr_smem_size", 46),
    ("%reserved_smem_offset_begin", 47),
    ("%reserved_smem_offset_end", 48),
    ("%reserved_smem_offset_cap", 49),
];

/// Is the register 64 bits wide?
pub fn wide(n: u32) -> bool {
    matches!(n, 24 | 26 | 17)
}

/// `mov d, %sreg`: number in `imm`; flags bit 0: the destination is 64 bits.
/// A predicate destination (`%is_explicit_cluster`) has flags bit 1.
pub fn read(m: &mut Machine, i: &Inst) -> Exec {
    let mut t = [0u64; 32];
    for l in 0..32 {
        t[l] = value(m, i.imm as u32, l as u32);
    }
    if i.flags & 2 != 0 {
        m.set_pred(i.a[0], if t[0] != 0 { !0 } else { 0 });
    } else if i.flags & 1 != 0 {
        m.store(i.a[0], &t);
    } else {
        m.store(i.a[0], &t.map(|x| x as u32));
    }
    Ok(Flow::Next)
}

fn value(m: &Machine, n: u32, lane: u32) -> u64 {
    let l = &m.l;
    let cta = &m.ctas[m.cta()];
    let w = &m.warps[m.w];
    let (g, b, c) = (l.grid, l.block, l.cluster);
    let k = |base: u32| (n - base) as usize;
    let time = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    (match n {
        0..=2 => m.thread(lane)[k(0)],
        3..=5 => b[k(3)],
        6..=8 => cta.id[k(6)],
        9..=11 => g[k(9)],
        12 => lane,
        13 => w.index,
        14 => (b[0] * b[1] * b[2]).div_ceil(32),
        15 => (cta.id[0] + cta.id[1] * g[0] + cta.id[2] * g[0] * g[1]) % l.arch.sms,
        16 => l.arch.sms,
        17 => 1,
        18 => 1 << lane,
        19 => (2u64 << lane).wrapping_sub(1) as u32,
        20 => (1u32 << lane) - 1,
        21 => !((1u32 << lane) - 1),
        22 => !((2u64 << lane).wrapping_sub(1) as u32),
        23 => m.counts.kinds.iter().map(|x| x.warps as u32).fold(0, u32::wrapping_add),
        24 => return m.counts.kinds.iter().map(|x| x.warps).sum(),
        25 => (m.counts.kinds.iter().map(|x| x.warps).sum::<u64>() >> 32) as u32,
        26 => return time(),
        27 => time() as u32,
        28 => (time() >> 32) as u32,
        29..=31 => cta.id[k(29)] / c[k(29)],
        32..=34 => g[k(32)] / c[k(32)],
        35..=37 => cta.id[k(35)] % c[k(35)],
        38..=40 => c[k(38)],
        41 => cta.rank,
        42 => c[0] * c[1] * c[2],
        43 => (c != [1, 1, 1]) as u32,
        44 => l.dyn_smem,
        45 | 46 => cta.smem.len(),
        47 => 0,
        48 | 49 => crate::shared::RESERVED,
        _ => 0,
    }) as u64
}
