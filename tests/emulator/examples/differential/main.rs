//! The same PTX on this machine's sm_90 card and on the emulator as sm_90: single instructions over special and random
//! values, and the kernels of kernels/differential_sm90.cu (compiled with -ptx -arch=compute_90a). Bytes must be equal;
//! sums of wgmma must be within what its order of adding can make of them, and how many are not equal is printed.
//!
//! `differential --kernels FILE.ptx [--only WORD]`. Exit status 0 when all agree, or without an sm_90 card (which one line
//! says; NVFP4_REQUIRE_GPU makes a missing driver a failure).

mod cases;
mod driver;

use cases::{Case, Rule};
use driver::{Driver, Map, Status};
use std::ffi::c_void;

fn argument(name: &str) -> Option<String> {
    std::env::args().skip_while(|a| a != name).nth(1)
}

fn run(d: &Driver, module: *mut c_void, c: &Case) -> Status<Vec<u8>> {
    let function = d.function(module, &c.entry)?;
    let (input, output) = (d.memory(&c.input)?, d.memory(&vec![0xCC; c.output])?);
    let map = |t: &Option<driver::Tensor>, at| t.as_ref().map_or(Ok(Map([0; 128])), |t| d.map(t, at));
    let (mut pi, mut po, mut args) = (input, output, c.args);
    let (mut from, mut to) = (map(&c.from, input)?, map(&c.to, output)?);
    let mut arguments =
        [(&raw mut pi).cast(), (&raw mut po).cast(), (&raw mut args).cast(), (&raw mut from).cast(), (&raw mut to).cast::<c_void>()];
    d.launch(function, [c.grid, c.block, c.cluster, c.shared], &mut arguments)?;
    let got = d.read(output, c.output)?;
    d.free(input)?;
    d.free(output)?;
    Ok(got)
}

/// Results of all cases; what a driver refuses or stops is a text. After a kernel that was stopped everything is loaded
/// into a new context.
fn run_all(d: &mut Driver, modules: &[String], cases: &[Case]) -> Vec<Status<Vec<u8>>> {
    let mut loaded = vec![None; modules.len()];
    let mut results = vec![];
    for c in cases {
        let module = *loaded[c.module].get_or_insert_with(|| d.module(&modules[c.module]).map(|m| m as usize).ok());
        let result = match module {
            Some(module) => run(d, module as *mut c_void, c),
            None => d.module(&modules[c.module]).map(|_| vec![]),
        };
        if result.is_err() && module.is_some() {
            d.restart().expect("a new context");
            loaded.fill(None);
        }
        results.push(result);
    }
    results
}

/// What is wrong with a pair of results, and how many sums differ within their slack.
fn compare(c: &Case, card: &[u8], emulated: &[u8]) -> (Option<String>, usize) {
    let (mut wrong, mut first, mut close) = (0, String::new(), 0);
    for (i, (x, y)) in card.chunks(4).zip(emulated.chunks(4)).enumerate() {
        if x == y {
            continue;
        }
        let word = |b: &[u8]| b.iter().rev().fold(0u32, |w, v| w << 8 | *v as u32);
        let (x, y) = (word(x), word(y));
        if c.rule == Rule::Sums && (f32::from_bits(x) - f32::from_bits(y)).abs() <= c.slack[i % c.slack.len()] {
            close += 1;
            continue;
        }
        if wrong == 0 {
            first = format!("word {i}: the card {x:#010x}, the emulator {y:#010x}{}", inputs(c, i));
        }
        wrong += 1;
    }
    ((wrong > 0).then(|| format!("{wrong} of {} words differ; {first}", card.len() / 4)), close)
}

/// Of a single instruction: what the thread had.
fn inputs(c: &Case, word: usize) -> String {
    if c.entry != "k" {
        return String::new();
    }
    let of = |k: usize| {
        let at = 4 * (k * cases::THREADS + word / 2);
        u32::from_le_bytes([c.input[at], c.input[at + 1], c.input[at + 2], c.input[at + 3]])
    };
    format!(" of a = {:#010x}, b = {:#010x}, c = {:#010x}", of(0), of(1), of(2))
}

fn main() {
    let mut card = match Driver::machine() {
        Ok(card) => card,
        Err(why) => {
            println!("differential suite skipped: {why}");
            std::process::exit(std::env::var_os("NVFP4_REQUIRE_GPU").is_some() as i32);
        }
    };
    match card.enter() {
        Err(why) => {
            println!("differential suite: {why}");
            std::process::exit(1);
        }
        Ok(false) => {
            println!("differential suite skipped: {} is not sm_90, which the emulator is for it", card.name);
            return;
        }
        Ok(true) => println!("{}", card.name),
    }
    let instructions = cases::instructions();
    let mut all = cases::instruction_cases(&instructions);
    let mut modules: Vec<String> = instructions.into_iter().map(|(text, _)| text).collect();
    let path = argument("--kernels").expect("--kernels FILE.ptx");
    // An older driver takes the same text under an older version.
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    modules.push(text.replace(".version 9.0", ".version 8.5"));
    all.extend(cases::kernel_cases(modules.len() - 1));
    if let Some(word) = argument("--only") {
        all.retain(|c| c.name.contains(&word));
    }
    let on_card = run_all(&mut card, &modules, &all);
    // A planted difference is the card's: it shows that one is found.
    std::env::remove_var("NVFP4_EMU_PLANT");
    std::env::set_var("NVFP4_EMU_ARCH", "sm_90");
    let mut emulator = Driver::emulator();
    assert_eq!(emulator.enter(), Ok(true), "the emulator as sm_90");
    let emulated = run_all(&mut emulator, &modules, &all);
    let (mut equal, mut failed, mut sums) = (0, 0, vec![]);
    for (c, (card, emulated)) in all.iter().zip(on_card.iter().zip(&emulated)) {
        let wrong = match (card, emulated) {
            (Ok(card), Ok(emulated)) => {
                let (wrong, close) = compare(c, card, emulated);
                if c.rule == Rule::Sums {
                    sums.push(format!("{} {close} of {}", c.name, card.len() / 4));
                }
                wrong
            }
            (Err(card), Ok(_)) => Some(format!("only the emulator runs it, the card says {card}")),
            (Ok(_), Err(emulated)) => Some(format!("only the card runs it, the emulator says {emulated}")),
            (Err(card), Err(_)) => Some(format!("neither runs it: {card}")),
        };
        match wrong {
            None => equal += 1,
            Some(how) => {
                failed += 1;
                println!("DIFFERS: {}\n    {how}", c.name);
            }
        }
    }
    println!("sums that are not equal, but within what order can make of them: {}", sums.join(", "));
    println!("{equal} cases equal, {failed} differ");
    std::process::exit((failed > 0) as i32);
}
