//! Branches, and where diverged lanes meet again: the immediate post-dominator.

use super::*;

impl<'m> Lower<'m> {
    pub(super) fn flow(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        match p[0] {
            "bra" => {
                let Some(Opnd::Name(n)) = i.ops.first() else { return self.err("bra without a label") };
                let Some(Sym::Label(id)) = self.lookup(n)? else { return self.err(format!("unknown label '{n}'")) };
                self.fixups.push((self.code.len(), id));
                self.emit(&i.op, exec::branch::bra, |x| x.jump = Jump::Branch);
            }
            "brx" => {
                let Some(Opnd::Name(n)) = i.ops.get(1) else { return self.err("brx.idx without targets") };
                let Some(Sym::Targets(t)) = self.lookup(n)? else { return self.err(format!("unknown target list '{n}'")) };
                let mut ids = Vec::new();
                for x in &t {
                    match self.lookup(x)? {
                        Some(Sym::Label(id)) => ids.push(id),
                        _ => return self.err(format!("unknown label '{x}'")),
                    }
                }
                let idx = self.src(&i.ops[0], 1, false)?;
                self.brx_fixups.push((self.code.len(), ids));
                self.emit(&i.op, exec::branch::brx, |x| {
                    x.jump = Jump::Indexed;
                    x.a[1] = idx;
                });
            }
            "ret" => match self.calls.last() {
                Some(&(_, end)) => {
                    self.fixups.push((self.code.len(), end));
                    self.emit("ret", exec::branch::bra, |x| x.jump = Jump::Branch);
                }
                None => self.emit("ret", exec::branch::exit, |x| x.jump = Jump::Exit),
            },
            "exit" => self.emit("exit", exec::branch::exit, |x| x.jump = Jump::Exit),
            "trap" | "brkpt" => self.emit(&i.op, exec::branch::trap, |_| {}),
            "call" => self.call(i)?,
            "pmevent" => self.emit(&i.op, exec::branch::nop, |_| {}),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn is_bra(i: &Inst) -> bool {
    i.jump == Jump::Branch
}
fn is_brx(i: &Inst) -> bool {
    i.jump == Jump::Indexed
}
fn is_exit(i: &Inst) -> bool {
    i.jump == Jump::Exit
}

/// Set `join` of every branch that can diverge.
pub(super) fn set_joins(code: &mut [Inst]) {
    let n = code.len();
    // Basic blocks.
    let mut leader = vec![false; n + 1];
    leader[0] = true;
    for (pc, i) in code.iter().enumerate() {
        if is_bra(i) {
            leader[i.imm as usize] = true;
            leader[pc + 1] = true;
        } else if is_brx(i) {
            for &t in &i.xs {
                leader[t as usize] = true;
            }
            leader[pc + 1] = true;
        } else if is_exit(i) {
            leader[pc + 1] = true;
        }
    }
    let starts: Vec<usize> = (0..n).filter(|&p| leader[p]).collect();
    let mut block_of = vec![0usize; n];
    for (b, &s) in starts.iter().enumerate() {
        let e = starts.get(b + 1).copied().unwrap_or(n);
        block_of[s..e].fill(b);
    }
    let nb = starts.len();
    let exit = nb; // virtual exit
    let last = |b: usize| starts.get(b + 1).copied().unwrap_or(n) - 1;
    let mut succ: Vec<Vec<usize>> = vec![Vec::new(); nb + 1];
    for b in 0..nb {
        let i = &code[last(b)];
        let next = if b + 1 < nb { b + 1 } else { exit };
        if is_bra(i) {
            succ[b].push(block_of[i.imm as usize]);
            if i.guard != 0 {
                succ[b].push(next);
            }
        } else if is_brx(i) {
            succ[b].extend(i.xs.iter().map(|&t| block_of[t as usize]));
            if i.guard != 0 {
                succ[b].push(next);
            }
        } else if is_exit(i) {
            succ[b].push(exit);
            if i.guard != 0 {
                succ[b].push(next);
            }
        } else {
            succ[b].push(next);
        }
    }
    let ipdom = post_dominators(&succ, exit);
    for b in 0..nb {
        let at = last(b);
        if (is_bra(&code[at]) && code[at].guard != 0) || is_brx(&code[at]) {
            let d = ipdom[b];
            code[at].join = if d == exit || d == usize::MAX { exec::NO_REC } else { starts[d] as u32 };
        }
    }
}

/// Immediate post-dominators by the iterative algorithm on the reversed graph.
fn post_dominators(succ: &[Vec<usize>], exit: usize) -> Vec<usize> {
    let n = succ.len();
    let mut pred = vec![Vec::new(); n];
    for (b, s) in succ.iter().enumerate() {
        for &x in s {
            pred[x].push(b);
        }
    }
    // Reverse post-order of the reversed graph from the exit.
    let mut order = Vec::with_capacity(n);
    let mut seen = vec![false; n];
    let mut stack = vec![(exit, 0usize)];
    seen[exit] = true;
    while let Some((b, k)) = stack.pop() {
        if let Some(&p) = pred[b].get(k) {
            stack.push((b, k + 1));
            if !seen[p] {
                seen[p] = true;
                stack.push((p, 0));
            }
        } else {
            order.push(b);
        }
    }
    order.reverse();
    let mut rank = vec![usize::MAX; n];
    for (r, &b) in order.iter().enumerate() {
        rank[b] = r;
    }
    let mut dom = vec![usize::MAX; n];
    dom[exit] = exit;
    let mut changed = true;
    while changed {
        changed = false;
        for &b in order.iter().skip(1) {
            let mut new = usize::MAX;
            for &s in &succ[b] {
                if dom[s] == usize::MAX {
                    continue;
                }
                if new == usize::MAX {
                    new = s;
                    continue;
                }
                let (mut x, mut y) = (new, s);
                while x != y {
                    while rank[x] > rank[y] {
                        x = dom[x];
                    }
                    while rank[y] > rank[x] {
                        y = dom[y];
                    }
                }
                new = x;
            }
            if new != dom[b] {
                dom[b] = new;
                changed = true;
            }
        }
    }
    dom
}

#[cfg(test)]
mod tests {
    use super::post_dominators;

    #[test]
    fn diamond_and_loop() {
        // 0 -> 1,2; 1 -> 3; 2 -> 3; 3 -> 3,4; 4 -> exit(5)
        let succ = vec![vec![1, 2], vec![3], vec![3], vec![3, 4], vec![5], vec![]];
        let d = post_dominators(&succ, 5);
        assert_eq!(&d[..5], &[3, 3, 3, 4, 5]);
    }
}
