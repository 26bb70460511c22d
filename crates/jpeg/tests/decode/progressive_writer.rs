//! A writer of progressive pictures from the coefficients of baseline ones, with any script of scans. Written for
//! readability, after `jcphuff.c` of libjpeg.

use spdl_jpeg::testing::XorShift;

use super::plain::{PlainCoefficients, coefficients};

/// One scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScanScript {
    pub(crate) components: Vec<usize>,
    /// The zigzag indices of the first and the last coefficient.
    pub(crate) band: [usize; 2],
    /// The number of low bits that the earlier scans lack, if there are any, and that this one leaves.
    pub(crate) high: u32,
    pub(crate) low: u32,
    /// The number of MCUs between restart markers, or 0.
    pub(crate) interval: u16,
    /// The largest number of blocks that one code ends.
    pub(crate) run: u32,
}

/// What is written of a scan: a symbol of the Huffman table, bits, or a restart marker.
enum Token {
    Symbol(u8),
    Bits(u32, u32),
    Restart,
}

/// Writes the picture again, progressive.
pub(crate) fn progressive(baseline: &[u8], script: &[ScanScript]) -> Vec<u8> {
    let mut out = vec![0xff, 0xd8];
    let (mut at, mut ids) = (2, Vec::new());
    while baseline[at + 1] != 0xda {
        let end = at + 2 + usize::from(u16::from_be_bytes([baseline[at + 2], baseline[at + 3]]));
        let mut segment = baseline[at..end].to_vec();
        match segment[1] {
            0xc0 => {
                segment[1] = 0xc2;
                ids = segment[10..].chunks(3).map(|component| component[0]).collect();
                out.extend(segment);
            }
            0xc4 | 0xdd => {}
            _ => out.extend(segment),
        }
        at = end;
    }
    let picture = coefficients(baseline);
    for scan in script {
        write_scan(&picture, &ids, scan, &mut out);
    }
    out.extend([0xff, 0xd9]);
    out
}

/// Returns a random script that contains all bits of all coefficients.
pub(crate) fn random_script(components: usize, draw: &mut XorShift) -> Vec<ScanScript> {
    let mut script = Vec::new();
    let mut scan = |draw: &mut XorShift, components: &[usize], band, high, low| {
        let interval = if draw.below(3) == 0 { 1 + draw.below(40) as u16 } else { 0 };
        let run = [1, 3, 0x7fff][draw.below(3)];
        script.push(ScanScript { components: components.to_vec(), band, high, low, interval, run });
    };
    let all: Vec<usize> = (0..components).collect();
    // DC first: all components together, or in groups.
    let mut dc_missing = vec![0; components];
    let mut at = 0;
    while at < components {
        let end = at + 1 + draw.below(components - at);
        let low = draw.below(3) as u32;
        scan(draw, &all[at..end], [0, 0], 0, low);
        dc_missing[at..end].fill(low);
        at = end;
    }
    let mut missing = vec![[None; 64]; components];
    loop {
        if draw.below(4) == 0 {
            let at = draw.below(components);
            let end = (at..components).find(|end| dc_missing[*end] != dc_missing[at]).unwrap_or(components);
            if dc_missing[at] > 0 {
                scan(draw, &all[at..end], [0, 0], dc_missing[at], dc_missing[at] - 1);
                dc_missing[at..end].iter_mut().for_each(|missing| *missing -= 1);
            }
        }
        // A band of which all coefficients lack the same bits.
        let component = draw.below(components);
        let first = 1 + draw.below(63);
        let state = missing[component][first];
        let end = (first..64).find(|k| missing[component][*k] != state).unwrap_or(64);
        let first = (1..=first).rev().take_while(|k| missing[component][*k] == state).last().unwrap();
        let last = if draw.below(3) == 0 { first + draw.below(end - first) } else { end - 1 };
        let next = match state {
            None => draw.below(4) as u32,
            Some(0) => {
                let is_complete = missing.iter().all(|of| of[1..].iter().all(|missing| *missing == Some(0)));
                if is_complete && dc_missing.iter().all(|missing| *missing == 0) {
                    return script;
                }
                continue;
            }
            Some(bits) => bits - 1,
        };
        scan(draw, &[component], [first, last], state.unwrap_or(0), next);
        missing[component][first..=last].fill(Some(next));
    }
}

fn write_scan(picture: &PlainCoefficients, ids: &[u8], scan: &ScanScript, out: &mut Vec<u8>) {
    let tokens = tokens(picture, scan);
    let is_dc = scan.band[0] == 0;
    let mut counts = vec![0; 256];
    for token in &tokens {
        if let Token::Symbol(symbol) = token {
            counts[usize::from(*symbol)] += 1;
        }
    }
    let codes = codes(&counts);
    let mut segment = |marker: u8, body: &[u8]| {
        out.extend([0xff, marker]);
        out.extend((body.len() as u16 + 2).to_be_bytes());
        out.extend(body);
    };
    if !is_dc || scan.high == 0 {
        let mut table = vec![if is_dc { 0 } else { 0x10 }];
        table.extend((1..=16).map(|length| codes.iter().filter(|code| code.2 == length).count() as u8));
        table.extend(codes.iter().map(|code| code.0));
        segment(0xc4, &table);
    }
    segment(0xdd, &scan.interval.to_be_bytes());
    let mut header = vec![scan.components.len() as u8];
    scan.components.iter().for_each(|component| header.extend([ids[*component], 0]));
    header.extend([scan.band[0] as u8, scan.band[1] as u8, (scan.high << 4 | scan.low) as u8]);
    segment(0xda, &header);
    let mut bits: Vec<bool> = Vec::new();
    let mut markers = 0;
    let put = |bits: &mut Vec<bool>, value: u32, count: u32| {
        bits.extend((0..count).rev().map(|at| value >> at & 1 == 1));
    };
    let flush = |bits: &mut Vec<bool>, out: &mut Vec<u8>| {
        for byte in bits.chunks(8) {
            let byte = (0..8).fold(0, |value, at| value << 1 | u8::from(byte.get(at).copied().unwrap_or(true)));
            out.push(byte);
            if byte == 0xff {
                out.push(0);
            }
        }
        bits.clear();
    };
    for token in tokens {
        match token {
            Token::Symbol(symbol) => {
                let (_, code, length) = *codes.iter().find(|code| code.0 == symbol).unwrap();
                put(&mut bits, code, length);
            }
            Token::Bits(value, count) => put(&mut bits, value, count),
            Token::Restart => {
                flush(&mut bits, out);
                out.extend([0xff, 0xd0 + markers]);
                markers = (markers + 1) % 8;
            }
        }
    }
    flush(&mut bits, out);
}

/// Returns a code for each symbol that occurs, with its length: up to six short ones, all others of 14 bits.
fn codes(counts: &[u32]) -> Vec<(u8, u32, u32)> {
    let mut symbols: Vec<u8> = (0..=255).filter(|symbol| counts[usize::from(*symbol)] > 0).collect();
    symbols.sort_by_key(|symbol| std::cmp::Reverse(counts[usize::from(*symbol)]));
    let (mut code, mut last) = (0, 0);
    let all = symbols.into_iter().enumerate().map(|(at, symbol)| {
        let length = if at < 6 { at as u32 + 1 } else { 14 };
        code <<= length - last;
        last = length;
        code += 1;
        (symbol, code - 1, length)
    });
    all.collect()
}

/// The blocks that the code for their end is still to be written for, and the bits that follow it.
#[derive(Default)]
struct Ended {
    blocks: u32,
    bits: Vec<u32>,
}

impl Ended {
    fn write(&mut self, tokens: &mut Vec<Token>) {
        if self.blocks > 0 {
            let size = self.blocks.ilog2();
            tokens.push(Token::Symbol((size << 4) as u8));
            tokens.push(Token::Bits(self.blocks & !(1 << size), size));
        }
        tokens.extend(self.bits.drain(..).map(|bit| Token::Bits(bit, 1)));
        self.blocks = 0;
    }
}

fn size_of(value: i64) -> u32 {
    64 - value.unsigned_abs().leading_zeros()
}

fn value(value: i64) -> Token {
    Token::Bits((if value < 0 { value - 1 } else { value }) as u32, size_of(value))
}

fn tokens(picture: &PlainCoefficients, scan: &ScanScript) -> Vec<Token> {
    let (mut tokens, mut ended, mut last) = (Vec::new(), Ended::default(), [0; 3]);
    let most = &picture.components[0];
    let [mcus_across, mcus_down] = if let [component] = scan.components[..] {
        let component = &picture.components[component];
        let blocks = |size: usize, own: usize, most: usize| (size * own).div_ceil(most).div_ceil(8);
        [blocks(picture.width, component.across, most.across), blocks(picture.height, component.down, most.down)]
    } else {
        [picture.width.div_ceil(8 * most.across), picture.height.div_ceil(8 * most.down)]
    };
    for mcu in 0..mcus_across * mcus_down {
        if scan.interval > 0 && mcu > 0 && mcu % usize::from(scan.interval) == 0 {
            ended.write(&mut tokens);
            tokens.push(Token::Restart);
            last = [0; 3];
        }
        for &number in &scan.components {
            let component = &picture.components[number];
            let [across, down] = if scan.components.len() == 1 { [1, 1] } else { [component.across, component.down] };
            for at in 0..across * down {
                let x = mcu % mcus_across * across + at % across;
                let y = mcu / mcus_across * down + at / across;
                let block = &component.blocks[y * component.blocks_across + x];
                match (scan.band[0], scan.high) {
                    (0, 0) => {
                        let dc = block[0] >> scan.low;
                        tokens.push(Token::Symbol(size_of(dc - last[number]) as u8));
                        tokens.push(value(dc - last[number]));
                        last[number] = dc;
                    }
                    (0, _) => tokens.push(Token::Bits((block[0] >> scan.low) as u32 & 1, 1)),
                    (_, 0) => first_block(block, scan, &mut ended, &mut tokens),
                    _ => refined_block(block, scan, &mut ended, &mut tokens),
                }
            }
        }
    }
    ended.write(&mut tokens);
    tokens
}

fn first_block(block: &[i64; 64], scan: &ScanScript, ended: &mut Ended, tokens: &mut Vec<Token>) {
    let mut zeros = 0;
    for &coefficient in &block[scan.band[0]..=scan.band[1]] {
        let shifted = coefficient.signum() * (coefficient.abs() >> scan.low);
        if shifted == 0 {
            zeros += 1;
            continue;
        }
        ended.write(tokens);
        while zeros > 15 {
            tokens.push(Token::Symbol(0xf0));
            zeros -= 16;
        }
        tokens.push(Token::Symbol(zeros << 4 | size_of(shifted) as u8));
        tokens.push(value(shifted));
        zeros = 0;
    }
    if zeros > 0 {
        ended.blocks += 1;
        if ended.blocks == scan.run {
            ended.write(tokens);
        }
    }
}

fn refined_block(block: &[i64; 64], scan: &ScanScript, ended: &mut Ended, tokens: &mut Vec<Token>) {
    let shifted = |k: usize| block[k].abs() >> scan.low;
    let last_new = (scan.band[0]..=scan.band[1]).rev().find(|k| shifted(*k) == 1).unwrap_or(0);
    let (mut zeros, mut bits) = (0, Vec::new());
    let write_bits = |bits: &mut Vec<u32>, tokens: &mut Vec<Token>| {
        tokens.extend(bits.drain(..).map(|bit| Token::Bits(bit, 1)));
    };
    let band = scan.band[0]..=scan.band[1];
    for (k, coefficient) in band.clone().zip(&block[band]) {
        if shifted(k) == 0 {
            zeros += 1;
            continue;
        }
        while zeros > 15 && k <= last_new {
            ended.write(tokens);
            tokens.push(Token::Symbol(0xf0));
            write_bits(&mut bits, tokens);
            zeros -= 16;
        }
        if shifted(k) > 1 {
            bits.push(shifted(k) as u32 & 1);
            continue;
        }
        ended.write(tokens);
        tokens.push(Token::Symbol(zeros << 4 | 1));
        tokens.push(Token::Bits(u32::from(*coefficient > 0), 1));
        write_bits(&mut bits, tokens);
        zeros = 0;
    }
    if zeros > 0 || !bits.is_empty() {
        ended.blocks += 1;
        ended.bits.extend(bits);
        if ended.blocks == scan.run {
            ended.write(tokens);
        }
    }
}
