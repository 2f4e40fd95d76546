//! More than 2^31 elements: the last rows of both copies of a 65552 x 32784 matrix must equal those of the CPU's
//! quantization of that slice, random bits included (they are numbered in the whole matrix).

use nvfp4::cpu::Cpu;
use nvfp4::cuda::Cuda;
use nvfp4::numerics::*;
use nvfp4::plan::{self, Buffers, QuantizeRequest, Seed, Source};

use super::config::{push_element, value, Data, Random};
use super::device::{Memory, Stream};

const ROWS: usize = 65552;
const COLS: usize = 32784;
/// Rows of the slice that is checked, at the end.
const SLICE: usize = 32;

pub fn run(cuda: &Cuda) -> Result<String, String> {
    let say = |e: nvfp4::Error| e.to_string();
    // A block of rows with random data, repeated; the tail is what is compared.
    let mut r = Random::new(9);
    let mut rows = Vec::new();
    for _ in 0..SLICE * COLS {
        push_element(&mut rows, Dtype::Bf16, value(&mut r, Data::Normal));
    }
    let row_bytes = COLS * 2;
    let x = Memory::new(ROWS * row_bytes);
    let mut at = 0;
    while at < ROWS {
        let n = SLICE.min(ROWS - at);
        x.write(at * row_bytes, &rows[..n * row_bytes]);
        at += n;
    }
    let tail_first = ROWS - SLICE;
    let mut tail = vec![0; SLICE * row_bytes];
    x.read(tail_first * row_bytes, &mut tail);

    let o = Options {
        rounding: Rounding::Stochastic,
        ..Options::default()
    };
    let (row_o, col_o) = (o, Options { hadamard: 16, ..o });
    let request = |amax: [*const f32; 2], origin| QuantizeRequest {
        rowwise: row_o,
        columnwise: col_o,
        seed: Seed::Host(5, 6),
        rowwise_amax: amax[0],
        columnwise_amax: amax[1],
        origin_row: origin,
        ..Default::default()
    };
    // On the GPU: everything, with the amax computed.
    let codes = [Memory::new(ROWS * COLS / 2), Memory::new(ROWS * COLS / 2)];
    let scales = [Memory::new(ROWS * COLS / 16), Memory::new(ROWS * COLS / 16)];
    let amax = Memory::new(256);
    codes.iter().chain(&scales).for_each(|m| m.fill(0xFF));
    let buffers = |i: usize| Buffers {
        codes: codes[i].at(0),
        codes_bytes: codes[i].bytes,
        scales: scales[i].at(0),
        scales_bytes: scales[i].bytes,
        amax: amax.at(4 * i).cast(),
        amax_count: 1,
        code_stride: 0,
        scale_stride: 0,
    };
    let m =
        plan::Matrix::new("x", x.at(0), Dtype::Bf16, ROWS as i64, COLS as i64, 0).map_err(say)?;
    let null = [std::ptr::null(); 2];
    let p = plan::quantize::plan(
        &request(null, 0),
        plan::Device::Cuda,
        Source::Matrix(m),
        Some(&buffers(0)),
        Some(&buffers(1)),
    )
    .map_err(say)?;
    let stream = Stream::new();
    cuda.quantize(&p, stream.raw()).map_err(say)?;
    stream.wait();
    let mut found = [0u8; 8];
    amax.read(0, &mut found);
    let given: Vec<f32> = found
        .chunks(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();

    // On the CPU: the tail.
    let mut want_codes = [vec![0u8; SLICE * COLS / 2], vec![0u8; SLICE * COLS / 2]];
    let mut want_scales = [vec![0u8; SLICE * COLS / 16], vec![0u8; SLICE * COLS / 16]];
    let mut want_amax = [0f32; 2];
    let mut host = Vec::new();
    for i in 0..2 {
        host.push(Buffers {
            codes: want_codes[i].as_mut_ptr(),
            codes_bytes: want_codes[i].len(),
            scales: want_scales[i].as_mut_ptr(),
            scales_bytes: want_scales[i].len(),
            amax: &raw mut want_amax[i],
            amax_count: 1,
            code_stride: 0,
            scale_stride: 0,
        });
    }
    let m = plan::Matrix::new(
        "x",
        tail.as_mut_ptr(),
        Dtype::Bf16,
        SLICE as i64,
        COLS as i64,
        0,
    )
    .map_err(say)?;
    let q = request([&given[0], &given[1]], tail_first as i64);
    let p = plan::quantize::plan(
        &q,
        plan::Device::Cpu,
        Source::Matrix(m),
        Some(&host[0]),
        Some(&host[1]),
    )
    .map_err(say)?;
    Cpu::new(0).quantize(&p).map_err(say)?;

    // Rowwise: the last rows. Columnwise: the last columns of every row of the transposed copy.
    let compare =
        |name: &str, memory: &Memory, want: &[u8], per_source_row: usize| -> Result<(), String> {
            let (whole, part) = (ROWS / per_source_row, SLICE / per_source_row);
            let mut all = vec![0; COLS * whole];
            memory.read(0, &mut all);
            for c in 0..COLS {
                if all[(c + 1) * whole - part..(c + 1) * whole] != want[c * part..(c + 1) * part] {
                    return Err(format!("{name} of transposed row {c} differ"));
                }
            }
            Ok(())
        };
    let mut got = vec![0; SLICE * COLS / 2];
    codes[0].read(tail_first * COLS / 2, &mut got);
    if got != want_codes[0] {
        return Err("the last rows of codes differ".into());
    }
    let mut got = vec![0; SLICE * COLS / 16];
    scales[0].read(tail_first * COLS / 16, &mut got);
    if got != want_scales[0] {
        return Err("the last rows of scales differ".into());
    }
    compare("codes", &codes[1], &want_codes[1], 2)?;
    compare("scales", &scales[1], &want_scales[1], 16)?;
    Ok(format!("{ROWS} x {COLS}"))
}
