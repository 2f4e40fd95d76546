//! Say what of a PTX file the emulator cannot run: `ptx_check FILE..`.

use nvfp4_emulator::{ir::Ext, lower, parse};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

fn main() {
    let mut bad = 0;
    for path in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&path).expect("readable file");
        let m = match parse::parse(&text) {
            Ok(m) => m,
            Err(e) => {
                println!("{path}: {e}");
                bad += 1;
                continue;
            }
        };
        let globals: HashMap<String, u64> = m
            .vars
            .iter()
            .filter(|v| matches!(v.space, parse::Space::Global | parse::Space::Const))
            .map(|v| (v.name.clone(), 4096))
            .collect();
        let env = lower::Env { globals };
        let text = Arc::new(text);
        let (mut kernels, mut instructions) = (0, 0);
        let mut missing: BTreeMap<String, u32> = BTreeMap::new();
        for f in m.funcs.iter().filter(|f| f.entry) {
            match lower::lower(&m, f, &env, text.clone()) {
                Ok(k) => {
                    kernels += 1;
                    instructions += k.code.len();
                    for i in &k.code {
                        if let Ext::Text(t) = &i.ext {
                            *missing.entry(t[0].clone()).or_default() += 1;
                        }
                    }
                }
                Err(e) => {
                    let line = text.lines().nth(e.line.saturating_sub(1) as usize).unwrap_or("").trim();
                    println!("{path}: {}: line {}: {}: {line}", f.name, e.line, e.msg);
                    bad += 1;
                }
            }
        }
        println!("{path}: {kernels} kernels, {instructions} instructions, {} unsupported opcodes", missing.len());
        for (op, n) in missing {
            println!("    {n:6} x {op}");
            bad += 1;
        }
    }
    std::process::exit((bad != 0) as i32);
}
