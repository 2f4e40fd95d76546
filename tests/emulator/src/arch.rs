//! The chip that is emulated: chosen by `NVFP4_EMU_ARCH`.

use std::sync::OnceLock;

#[derive(Clone, Copy, Debug)]
pub struct Arch {
    pub name: &'static str,
    /// Compute capability times ten: 80, 90, 100, 103, 120.
    pub cc: u32,
    pub sms: u32,
    pub smem_per_sm: u32,
    pub smem_optin: u32,
    pub threads_per_sm: u32,
    pub l2: u32,
}

const ARCHS: [Arch; 7] = [
    Arch { name: "sm_80", cc: 80, sms: 108, smem_per_sm: 167_936, smem_optin: 166_912, threads_per_sm: 2048, l2: 40 << 20 },
    Arch { name: "sm_86", cc: 86, sms: 84, smem_per_sm: 102_400, smem_optin: 101_376, threads_per_sm: 1536, l2: 6 << 20 },
    Arch { name: "sm_89", cc: 89, sms: 128, smem_per_sm: 102_400, smem_optin: 101_376, threads_per_sm: 1536, l2: 72 << 20 },
    Arch { name: "sm_90", cc: 90, sms: 132, smem_per_sm: 233_472, smem_optin: 232_448, threads_per_sm: 2048, l2: 50 << 20 },
    Arch { name: "sm_100", cc: 100, sms: 148, smem_per_sm: 233_472, smem_optin: 232_448, threads_per_sm: 2048, l2: 126 << 20 },
    Arch { name: "sm_103", cc: 103, sms: 148, smem_per_sm: 233_472, smem_optin: 232_448, threads_per_sm: 2048, l2: 126 << 20 },
    Arch { name: "sm_120", cc: 120, sms: 170, smem_per_sm: 102_400, smem_optin: 101_376, threads_per_sm: 1536, l2: 96 << 20 },
];

impl Arch {
    pub fn by_name(name: &str) -> Option<Arch> {
        ARCHS.into_iter().find(|a| a.name == name)
    }

    /// May PTX for `.target t` run on this chip?
    pub fn accepts(&self, target: &str) -> bool {
        let Some(t) = target.strip_prefix("sm_") else { return false };
        let digits = t.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let Ok(cc) = digits.parse::<u32>() else { return false };
        match &t[digits.len()..] {
            "" => cc <= self.cc,
            "a" => cc == self.cc,
            "f" => cc / 10 == self.cc / 10 && cc <= self.cc,
            _ => false,
        }
    }

    pub fn tcgen05(&self) -> bool {
        self.cc / 10 == 10
    }
}

static CHOSEN: OnceLock<Arch> = OnceLock::new();

/// Choose the chip from inside a process (tests); false when it is chosen already
/// and differs.
pub fn choose(name: &str) -> bool {
    let Some(a) = Arch::by_name(name) else { return false };
    CHOSEN.get_or_init(|| a).name == a.name
}

/// The configured chip (sm_90 by default). A wrong name stops the process: a
/// test must never run on another chip than it asked for.
pub fn current() -> Arch {
    *CHOSEN.get_or_init(|| {
        let name = std::env::var("NVFP4_EMU_ARCH").unwrap_or_else(|_| "sm_90".into());
        let plain = name.trim_end_matches(['a', 'f']);
        let chip = Arch::by_name(plain).unwrap_or_else(|| {
            let known: Vec<_> = ARCHS.iter().map(|a| a.name).collect();
            eprintln!("emulator: NVFP4_EMU_ARCH={name} is not one of {}", known.join(", "));
            std::process::exit(97)
        });
        match std::env::var("NVFP4_EMU_SMS") {
            Err(_) => chip,
            Ok(text) => Arch {
                sms: text.parse().ok().filter(|&n| n > 0).unwrap_or_else(|| {
                    eprintln!("emulator: NVFP4_EMU_SMS={text} is not a number of multiprocessors");
                    std::process::exit(97)
                }),
                ..chip
            },
        }
    })
}
