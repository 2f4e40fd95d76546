//! `make bench`: every operation of the CPU backend as an absolute rate, as a share of what this machine can do (measured
//! in the same run), and beside its peers (benches/peers.py, if its modules are there).
//!
//! Arguments: words to pick lines by name; `--json FILE`; `--quick`; `--peers FILE`, what benches/peers.py printed before,
//! for a run in pieces. NVFP4_CPU_ISA picks the instruction set.

mod data;
mod operations;
mod roofline;

use roofline::Roofline;
use std::time::Instant;

/// One line of the table.
pub struct Line {
    pub name: String,
    pub threads: usize,
    /// In `unit`.
    pub rate: f64,
    pub unit: &'static str,
    /// Name and rate of what bounds it, in the same unit.
    pub bound: Option<(&'static str, f64)>,
    /// Peers that do the same, by their names in benches/peers.py.
    pub peers: Vec<String>,
}

/// Measures and prints as it goes.
pub struct Bench {
    pub roofline: Roofline,
    pub threads: usize,
    pub quick: bool,
    picks: Vec<String>,
    peers: Vec<(String, f64)>,
    pub lines: Vec<Line>,
}

impl Bench {
    /// Is a line of this name wanted?
    pub fn wants(&self, name: &str) -> bool {
        self.picks.is_empty() || self.picks.iter().any(|p| name.contains(p.as_str()))
    }

    /// Seconds of the best of several runs.
    pub fn best(&self, mut run: impl FnMut()) -> f64 {
        run();
        let (limit, least) = if self.quick { (0.15, 3) } else { (0.8, 5) };
        let begin = Instant::now();
        let mut best = f64::INFINITY;
        let mut runs = 0;
        while runs < least || begin.elapsed().as_secs_f64() < limit {
            let start = Instant::now();
            run();
            best = best.min(start.elapsed().as_secs_f64());
            runs += 1;
        }
        best
    }

    pub fn add(&mut self, line: Line) {
        let share = match line.bound {
            Some((name, bound)) if bound > 0.0 => {
                format!("{:>4.0} % of {name} {bound:.1}", 100.0 * line.rate / bound)
            }
            _ => String::new(),
        };
        let ratios: Vec<String> = line
            .peers
            .iter()
            .filter_map(|p| {
                self.peer(p, line.threads)
                    .map(|r| format!("{:.1}x {p}", line.rate / r))
            })
            .collect();
        println!(
            "{:<44} {:>2}T {:>9.2} {:<8} {:<34} {}",
            line.name,
            line.threads,
            line.rate,
            line.unit,
            share,
            ratios.join(", ")
        );
        self.lines.push(line);
    }

    fn peer(&self, name: &str, threads: usize) -> Option<f64> {
        let key = format!("{name} {threads}T");
        self.peers.iter().find(|(n, _)| *n == key).map(|(_, r)| *r)
    }
}

/// Rates of the peers: lines of "name threadsT: rate" from benches/peers.py, or of the file that keeps what it printed.
fn peers(quick: bool, file: Option<&str>) -> Vec<(String, f64)> {
    if let Some(file) = file {
        return rates(&std::fs::read_to_string(file).expect("the file of --peers can be read"));
    }
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers.py");
    let mut command = std::process::Command::new(&python);
    command.arg(script);
    if quick {
        command.arg("--quick");
    }
    // Whatever the environment says of them, OpenBLAS and OpenMP choose kernels and sizes by themselves.
    for (key, _) in std::env::vars() {
        if key.starts_with("OPENBLAS_") || key.starts_with("OMP_") || key.starts_with("MKL_") {
            command.env_remove(key);
        }
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            println!("no peers: {python} does not start: {error}");
            return Vec::new();
        }
    };
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        println!("peers: {line}");
    }
    rates(&String::from_utf8_lossy(&output.stdout))
}

fn rates(text: &str) -> Vec<(String, f64)> {
    text.lines()
        .filter_map(|line| {
            let (name, rate) = line.rsplit_once(": ")?;
            Some((name.to_string(), rate.trim().parse().ok()?))
        })
        .collect()
}

fn command_line(program: &str, arguments: &[&str]) -> String {
    let output = std::process::Command::new(program).args(arguments).output();
    output.map_or_else(
        |_| String::new(),
        |o| String::from_utf8_lossy(&o.stdout).trim().to_string(),
    )
}

fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = info.lines().find(|l| l.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_string())
    };
    format!(
        "{} (family {}, model {})",
        field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_string()),
        field("cpu family").unwrap_or_default(),
        field("model\t").unwrap_or_default()
    )
}

fn main() {
    let mut picks = Vec::new();
    let (mut json, mut file) = (None, None);
    let mut quick = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => json = arguments.next(),
            "--peers" => file = arguments.next(),
            "--quick" => quick = true,
            // Cargo adds it.
            "--bench" => {}
            _ => picks.push(argument),
        }
    }
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let header = [
        ("machine", processor()),
        ("threads", threads.to_string()),
        ("date", command_line("date", &["-u", "+%Y-%m-%d"])),
        (
            "commit",
            command_line("git", &["rev-parse", "--short", "HEAD"]),
        ),
    ];
    for (name, value) in &header {
        println!("{name}: {value}");
    }
    let roofline = Roofline::measure(threads);
    println!("{roofline:.1?}");
    let mut bench = Bench {
        roofline,
        threads,
        quick,
        picks,
        peers: peers(quick, file.as_deref()),
        lines: Vec::new(),
    };
    for (name, rate) in &bench.peers {
        println!("peer: {name}: {rate:.3}");
    }
    operations::all(&mut bench);
    if let Some(path) = json {
        std::fs::write(&path, report(&header, &bench)).expect("the JSON file can be written");
        println!("wrote {path}");
    }
}

/// Everything measured, as JSON.
fn report(header: &[(&str, String)], bench: &Bench) -> String {
    let quote = |s: &str| format!("\"{}\"", s.replace('\\', "\\\\").replace('"', "\\\""));
    let mut out = String::from("{\n");
    for (name, value) in header {
        out += &format!("  {}: {},\n", quote(name), quote(value));
    }
    let r = &bench.roofline;
    let rates = [
        ("fma_gflops", r.fma),
        ("vnni_gops", r.vnni),
        ("read_8mib_gbs", r.read_l3),
        ("read_gbs", r.read),
        ("nt_copy_gbs", r.copy),
        ("nt_write_gbs", r.write),
    ];
    let rates: Vec<String> = rates
        .iter()
        .map(|(n, [a, b])| format!("{}: [{a:.2}, {b:.2}]", quote(n)))
        .collect();
    out += &format!("  \"roofline\": {{{}}},\n", rates.join(", "));
    let peers: Vec<String> = bench
        .peers
        .iter()
        .map(|(n, r)| format!("{}: {r:.4}", quote(n)))
        .collect();
    out += &format!("  \"peers\": {{{}}},\n  \"lines\": [\n", peers.join(", "));
    let lines: Vec<String> = bench
        .lines
        .iter()
        .map(|l| {
            let bound = l.bound.map_or(String::new(), |(n, b)| {
                format!(", \"bound\": {}, \"bound_rate\": {b:.3}", quote(n))
            });
            format!(
                "    {{\"name\": {}, \"threads\": {}, \"rate\": {:.4}, \"unit\": {}{bound}}}",
                quote(&l.name),
                l.threads,
                l.rate,
                quote(l.unit)
            )
        })
        .collect();
    out + &lines.join(",\n") + "\n  ]\n}\n"
}
