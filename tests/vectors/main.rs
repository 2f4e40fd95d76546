//! Writes the conformance vectors (README.md in this folder) from the scalar reference, or, without
//! NVFP4_WRITE_VECTORS in the environment, compares the committed ones with it.

mod cases_blocks;
mod cases_decode;
mod cases_gemm;
mod cases_mx;
mod cases_quantize;
mod cases_random;
mod cases_values;
mod describe;
mod json;

use json::{number, text, Json, List, Object};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// One file: the rule it pins, where the rule is written, and its cases.
pub struct Vector {
    pub name: &'static str,
    /// Section of docs/format.md.
    pub section: usize,
    pub rule: &'static str,
    pub cases: Vec<Json>,
}

impl Vector {
    fn render(self) -> String {
        let mut out = String::new();
        Object(vec![
            ("name", text(self.name)),
            ("section", number(self.section)),
            ("rule", text(self.rule)),
            ("cases", List(self.cases)),
        ])
        .pretty(0, &mut out);
        out.push('\n');
        out
    }
}

#[test]
fn vectors_equal_the_reference() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut expected = BTreeMap::new();
    let mut vectors = cases_values::all();
    vectors.extend(cases_blocks::all());
    vectors.extend(cases_mx::all());
    vectors.extend(cases_random::all());
    vectors.extend(cases_decode::all());
    vectors.extend(cases_gemm::all());
    vectors.push(cases_quantize::rejected());
    for v in vectors {
        assert!(
            expected
                .insert(format!("{}.json", v.name), v.render())
                .is_none(),
            "a name twice"
        );
    }
    if std::env::var_os("NVFP4_WRITE_VECTORS").is_some() {
        for (name, content) in &expected {
            std::fs::write(folder.join(name), content).unwrap();
        }
    }
    let mut total = 0;
    for (name, content) in &expected {
        let committed = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(
            committed == *content,
            "{name} differs from the reference; NVFP4_WRITE_VECTORS=1 rewrites it"
        );
        total += content.len();
    }
    assert!(total < 300_000, "{total} bytes of vectors");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            !name.ends_with(".json") || expected.contains_key(&name),
            "{name} belongs to no rule"
        );
    }
}
