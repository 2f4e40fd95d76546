//! Parser for the PTX that nvcc emits, inline assembly included.

pub mod ast;
mod decl;
mod lex;
mod stmt;

pub use ast::*;
use lex::{lex, Tok, Token};
use std::fmt;

#[derive(Debug)]
pub struct ParseError {
    pub line: u32,
    pub msg: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PTX line {}: {}", self.line, self.msg)
    }
}

type Res<T> = Result<T, ParseError>;

pub(crate) struct Parser<'a> {
    toks: Vec<Token<'a>>,
    pos: usize,
    module: Module,
    loc: u32,
}

/// Parse a module's text.
pub fn parse(text: &str) -> Res<Module> {
    let toks = lex(text)?;
    let mut p = Parser { toks, pos: 0, module: Module::default(), loc: 0 };
    p.module.locs.push(Loc::default());
    p.module()?;
    Ok(p.module)
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Tok<'a> {
        self.toks[self.pos].tok
    }
    fn peek2(&self) -> Tok<'a> {
        self.toks.get(self.pos + 1).map_or(Tok::Eof, |t| t.tok)
    }
    fn line(&self) -> u32 {
        self.toks[self.pos].line
    }
    fn next(&mut self) -> Tok<'a> {
        let t = self.toks[self.pos].tok;
        if self.pos + 1 < self.toks.len() {
            self.pos += 1;
        }
        t
    }
    fn err<T>(&self, msg: impl Into<String>) -> Res<T> {
        Err(ParseError { line: self.line(), msg: msg.into() })
    }
    fn is(&self, c: u8) -> bool {
        self.peek() == Tok::Punct(c)
    }
    fn eat(&mut self, c: u8) -> bool {
        let hit = self.is(c);
        if hit {
            self.next();
        }
        hit
    }
    fn expect(&mut self, c: u8) -> Res<()> {
        if self.eat(c) {
            return Ok(());
        }
        self.err(format!("expected '{}', found {:?}", c as char, self.peek()))
    }
    fn word(&mut self) -> Res<&'a str> {
        match self.next() {
            Tok::Word(w) => Ok(w),
            t => {
                self.pos -= 1;
                self.err(format!("expected a name, found {t:?}"))
            }
        }
    }
    /// A signed integer literal.
    fn int(&mut self) -> Res<i64> {
        let neg = self.eat(b'-');
        match self.next() {
            Tok::Int(v) => Ok(if neg { (v as i64).wrapping_neg() } else { v as i64 }),
            t => {
                self.pos -= 1;
                self.err(format!("expected an integer, found {t:?}"))
            }
        }
    }
    fn skip_to(&mut self, c: u8) {
        while !self.is(c) && self.peek() != Tok::Eof {
            self.next();
        }
        self.eat(c);
    }
    fn skip_block(&mut self) -> Res<()> {
        self.expect(b'{')?;
        let mut depth = 1;
        while depth > 0 {
            match self.next() {
                Tok::Punct(b'{') => depth += 1,
                Tok::Punct(b'}') => depth -= 1,
                Tok::Eof => return self.err("block not closed"),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Bytes of a scalar type name (`.f32`, `.b128`); 0 for `.pred` and unknown.
pub fn type_bytes(ty: &str) -> u32 {
    match ty {
        ".b8" | ".u8" | ".s8" => 1,
        ".b16" | ".u16" | ".s16" | ".f16" | ".bf16" => 2,
        ".b32" | ".u32" | ".s32" | ".f32" | ".f16x2" | ".bf16x2" => 4,
        ".b64" | ".u64" | ".s64" | ".f64" | ".f32x2" => 8,
        ".b128" => 16,
        _ => 0,
    }
}
