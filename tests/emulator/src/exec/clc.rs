//! `clusterlaunchcontrol`: a running cluster takes over one that has not started.

use super::async_copy::Until;
use super::*;
use crate::ir::{Exec, Flow, MSpace};
use std::sync::atomic::Ordering;

/// `try_cancel.async [response], [mbarrier]`: a[1] and a[2] addresses, xs their
/// displacements; flags 1 and 2: 64-bit addresses, 4: to all blocks.
pub fn try_cancel(m: &mut Machine, i: &Inst) -> Exec {
    let to = m.addresses_of(i.a[1], i.xs[0] as i32 as i64, i.flags & 1 != 0);
    let bar = m.addresses_of(i.a[2], i.xs[1] as i32 as i64, i.flags & 2 != 0);
    for l in m.lanes() {
        let (cta, off) = m.shared_place(i, l, MSpace::SharedCluster, to[l] as u32, 16)?;
        let (bcta, boff) = m.shared_place(i, l, MSpace::SharedCluster, bar[l] as u32, 8)?;
        if off % 16 != 0 {
            return Err(m.fault_at(i, l as u32, crate::fault::MISALIGNED, format!("response at {:#x} is not 16-byte aligned", to[l])));
        }
        let (all, who) = (i.flags & 4 != 0, m.issuer(0, 0));
        m.enqueue(
            l as u32,
            Until::Signal,
            Box::new(move |m, i| {
                let launch = m.l.clone();
                let (g, c) = (launch.grid, launch.cluster);
                let total = (0..3).map(|d| g[d] / c[d]).product::<u32>();
                let took = launch.next_cluster.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |x| (x < total).then_some(x + 1));
                let mut word = [0u8; 16];
                if let Ok(index) = took {
                    let n = [g[0] / c[0], g[1] / c[1]];
                    let first = [index % n[0] * c[0], index / n[0] % n[1] * c[1], index / (n[0] * n[1]) * c[2]];
                    for d in 0..3 {
                        word[4 * d..4 * d + 4].copy_from_slice(&first[d].to_le_bytes());
                    }
                    word[15] = 1;
                }
                let ranks = if all { 0..m.ctas.len() } else { cta..cta + 1 };
                for r in ranks {
                    m.deliver(i, r, off, &word, if all { r } else { bcta }, boff, &who)?;
                }
                Ok(())
            }),
        );
    }
    Ok(Flow::Next)
}

/// `query_cancel.is_canceled.pred.b128 p, response`
pub fn is_canceled(m: &mut Machine, i: &Inst) -> Exec {
    let r = *m.row::<u128>(i.a[1]);
    let mut p = 0u32;
    for l in 0..32 {
        p |= ((r[l] >> 120 != 0) as u32) << l;
    }
    m.set_pred(i.a[0], p);
    Ok(Flow::Next)
}

/// `query_cancel.get_first_ctaid`: xs = destinations of x, y, z (or one of them, imm).
pub fn first_ctaid(m: &mut Machine, i: &Inst) -> Exec {
    let r = *m.row::<u128>(i.a[1]);
    for (k, &d) in i.xs.iter().enumerate().take(3) {
        if d != super::ldst::SINK {
            let at = if i.imm >= 0 { i.imm as usize } else { k };
            let t = r.map(|x| (x >> (32 * at)) as u32);
            m.store(d, &t);
        }
    }
    Ok(Flow::Next)
}
