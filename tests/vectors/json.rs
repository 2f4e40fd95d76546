//! Just enough JSON to write the vectors the same way every time.

pub enum Json {
    Text(String),
    Number(i64),
    Flag(bool),
    List(Vec<Json>),
    Object(Vec<(&'static str, Json)>),
}

pub use Json::*;

pub fn text(s: impl Into<String>) -> Json {
    Text(s.into())
}

pub fn number(n: usize) -> Json {
    Number(n as i64)
}

/// Bytes as hex digits, `per_line` bytes a string; the strings are to be concatenated.
pub fn bytes(data: &[u8], per_line: usize) -> Json {
    let hex = |line: &[u8]| Text(line.iter().map(|b| format!("{b:02x}")).collect());
    List(data.chunks(per_line.max(1)).map(hex).collect())
}

/// f32 values by their bits, `per_line` a string, separated by spaces; any NaN is the word nan.
pub fn floats(values: &[f32], per_line: usize) -> Json {
    let word = |v: &f32| {
        if v.is_nan() {
            "nan".into()
        } else {
            format!("{:08x}", v.to_bits())
        }
    };
    lines(values, per_line, word)
}

/// 16-bit words, `per_line` a string.
pub fn halves(values: &[u16], per_line: usize) -> Json {
    lines(values, per_line, |v| format!("{v:04x}"))
}

fn lines<T>(values: &[T], per_line: usize, word: impl Fn(&T) -> String) -> Json {
    let line = |l: &[T]| Text(l.iter().map(&word).collect::<Vec<_>>().join(" "));
    List(values.chunks(per_line.max(1)).map(line).collect())
}

impl Json {
    pub fn pretty(&self, indent: usize, out: &mut String) {
        let pad = " ".repeat(indent + 1);
        match self {
            Text(s) => out.push_str(&format!(
                "\"{}\"",
                s.replace('\\', "\\\\").replace('"', "\\\"")
            )),
            Number(n) => out.push_str(&n.to_string()),
            Flag(b) => out.push_str(&b.to_string()),
            List(items) if items.is_empty() => out.push_str("[]"),
            List(items) => {
                let short = items.iter().all(|i| matches!(i, Number(_))) || items.len() == 1;
                let separator = if short {
                    String::new()
                } else {
                    format!("\n{pad}")
                };
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    out.push_str(if i > 0 { "," } else { "" });
                    out.push_str(if i > 0 && short { " " } else { &separator });
                    item.pretty(indent + 1, out);
                }
                out.push_str(&if short {
                    "]".into()
                } else {
                    format!("\n{}]", " ".repeat(indent))
                });
            }
            Object(fields) => {
                out.push('{');
                for (i, (key, value)) in fields.iter().enumerate() {
                    out.push_str(&format!(
                        "{}\n{pad}\"{key}\": ",
                        if i > 0 { "," } else { "" }
                    ));
                    value.pretty(indent + 1, out);
                }
                out.push_str(&format!("\n{}}}", " ".repeat(indent)));
            }
        }
    }
}
