//! Tokens of PTX text.

use super::ParseError;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tok<'a> {
    /// Identifier, opcode with its dotted modifiers, or directive with its dot.
    Word(&'a str),
    Int(u64),
    /// `0f` literal, as bits.
    F32(u32),
    /// `0d` literal or a decimal literal with a point, as bits.
    F64(u64),
    Str(&'a str),
    Punct(u8),
    Eof,
}

pub struct Token<'a> {
    pub tok: Tok<'a>,
    pub line: u32,
}

fn word_char(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'_' | b'$' | b'%' | b'.')
}

fn number(s: &str) -> Option<Tok<'_>> {
    let b = s.as_bytes();
    if b.len() > 2 && b[0] == b'0' {
        match b[1] {
            b'f' | b'F' => return u32::from_str_radix(&s[2..], 16).ok().map(Tok::F32),
            b'd' | b'D' => return u64::from_str_radix(&s[2..], 16).ok().map(Tok::F64),
            b'x' | b'X' => {
                let h = s[2..].trim_end_matches('U');
                return u64::from_str_radix(h, 16).ok().map(Tok::Int);
            }
            b'b' | b'B' => {
                let h = s[2..].trim_end_matches('U');
                return u64::from_str_radix(h, 2).ok().map(Tok::Int);
            }
            _ => {}
        }
    }
    if s.contains('.') || s.contains('e') {
        return s.parse::<f64>().ok().map(|v| Tok::F64(v.to_bits()));
    }
    let t = s.trim_end_matches('U');
    if t.len() > 1 && t.starts_with('0') {
        return u64::from_str_radix(t, 8).ok().map(Tok::Int);
    }
    t.parse::<u64>().ok().map(Tok::Int)
}

pub fn lex(text: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let b = text.as_bytes();
    let mut out = Vec::with_capacity(b.len() / 4);
    let (mut i, mut line) = (0usize, 1u32);
    while i < b.len() {
        let c = b[i];
        match c {
            b'\n' => {
                line += 1;
                i += 1;
            }
            b' ' | b'\t' | b'\r' | 0 => i += 1,
            b'/' if b.get(i + 1) == Some(&b'/') => {
                while i < b.len() && b[i] != b'\n' {
                    i += 1;
                }
            }
            b'/' if b.get(i + 1) == Some(&b'*') => {
                i += 2;
                while i + 1 < b.len() && !(b[i] == b'*' && b[i + 1] == b'/') {
                    line += (b[i] == b'\n') as u32;
                    i += 1;
                }
                i += 2;
            }
            b'"' => {
                let start = i + 1;
                i += 1;
                while i < b.len() && b[i] != b'"' {
                    i += 1 + (b[i] == b'\\') as usize;
                }
                out.push(Token { tok: Tok::Str(&text[start..i.min(b.len())]), line });
                i += 1;
            }
            _ if c.is_ascii_digit() => {
                let start = i;
                while i < b.len() && (b[i].is_ascii_alphanumeric() || b[i] == b'.') {
                    i += 1;
                }
                let s = &text[start..i];
                let tok = number(s).ok_or_else(|| ParseError { line, msg: format!("malformed number '{s}'") })?;
                out.push(Token { tok, line });
            }
            _ if word_char(c) => {
                let start = i;
                while i < b.len() {
                    if word_char(b[i]) {
                        i += 1;
                    } else if b[i] == b':' && b.get(i + 1) == Some(&b':') && b.get(i + 2).is_some_and(|c| c.is_ascii_alphanumeric()) {
                        i += 2; // `.shared::cta`
                    } else {
                        break;
                    }
                }
                out.push(Token { tok: Tok::Word(&text[start..i]), line });
            }
            b',' | b';' | b'{' | b'}' | b'[' | b']' | b'(' | b')' | b'+' | b'-' | b'<' | b'>' | b'=' | b'|' | b'!' | b'@' | b':' | b'~'
            | b'*' => {
                out.push(Token { tok: Tok::Punct(c), line });
                i += 1;
            }
            _ => return Err(ParseError { line, msg: format!("unexpected character '{}'", c as char) }),
        }
    }
    out.push(Token { tok: Tok::Eof, line });
    Ok(out)
}
