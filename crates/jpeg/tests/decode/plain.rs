//! A decoder for the same pictures, written for readability: it reads bit by bit, and computes the whole picture pixel
//! by pixel. It panics on broken pictures.

use std::collections::HashMap;

/// One component, decoded.
pub(crate) struct PlainComponent {
    /// The number of blocks of an MCU.
    pub(crate) across: usize,
    pub(crate) down: usize,
    quant: usize,
    dc: usize,
    ac: usize,
    /// The quantised coefficients of all blocks in zigzag order, row by row, `blocks_across` in each.
    pub(crate) blocks: Vec<[i64; 64]>,
    pub(crate) blocks_across: usize,
    width: usize,
    samples: Vec<u8>,
}

/// The coefficients of a picture.
pub(crate) struct PlainCoefficients {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) components: Vec<PlainComponent>,
    quants: Vec<[i64; 64]>,
}

/// A picture of RGB pixels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlainPicture {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) rgb: Vec<[u8; 3]>,
}

struct PlainBits<'b> {
    bytes: &'b [u8],
    at: usize,
    bit: u32,
}

type Codes = HashMap<(u32, u32), u8>;

impl PlainBits<'_> {
    fn bit(&mut self) -> u32 {
        let value = u32::from(self.bytes[self.at]) >> (7 - self.bit) & 1;
        self.bit += 1;
        if self.bit == 8 {
            self.at += if self.bytes[self.at] == 0xff { 2 } else { 1 };
            self.bit = 0;
        }
        value
    }

    fn symbol(&mut self, codes: &Codes) -> u8 {
        let mut code = 0;
        for length in 1..=16 {
            code = code << 1 | self.bit();
            if let Some(symbol) = codes.get(&(length, code)) {
                return *symbol;
            }
        }
        panic!("no code");
    }

    fn value(&mut self, size: u8) -> i64 {
        let value = (0..size).fold(0, |value, _| value << 1 | i64::from(self.bit()));
        if size > 0 && value < 1 << (size - 1) { value - (1 << size) + 1 } else { value }
    }

    fn restart(&mut self) {
        while self.bit > 0 {
            assert_eq!(self.bit(), 1, "padding");
        }
        assert!(self.bytes[self.at] == 0xff && self.bytes[self.at + 1] & 0xf8 == 0xd0, "a restart marker");
        (self.at, self.bit) = (self.at + 2, 0);
    }
}

/// Returns the zigzag order of coefficients, computed by walking the diagonals.
fn zigzag() -> Vec<usize> {
    let mut order: Vec<usize> = (0..64).collect();
    order.sort_by_key(|at| {
        let (row, column) = (at / 8, at % 8);
        (row + column, if (row + column) % 2 == 0 { column } else { row })
    });
    order
}

/// The transform of `jidctint.c`, with its own constants, in wide integers.
fn transform(input: [i64; 8], shift: u32) -> [i64; 8] {
    let z1 = (input[2] + input[6]) * 4433;
    let (even2, even3) = (z1 - input[6] * 15_137, z1 + input[2] * 6270);
    let (even0, even1) = ((input[0] + input[4]) << 13, (input[0] - input[4]) << 13);
    let even = [even0 + even3, even1 + even2, even1 - even2, even0 - even3];
    let [t0, t1, t2, t3] = [input[7], input[5], input[3], input[1]];
    let (z1, z2, z3, z4) = (t0 + t3, t1 + t2, t0 + t2, t1 + t3);
    let z5 = (z3 + z4) * 9633;
    let (z1, z2, z3, z4) = (-z1 * 7373, -z2 * 20_995, z5 - z3 * 16_069, z5 - z4 * 3196);
    let odd = [t3 * 12_299 + z1 + z4, t2 * 25_172 + z2 + z3, t1 * 16_819 + z2 + z4, t0 * 2446 + z1 + z3];
    let mut out = [0; 8];
    for at in 0..4 {
        out[at] = (even[at] + odd[at] + (1 << (shift - 1))) >> shift;
        out[7 - at] = (even[at] - odd[at] + (1 << (shift - 1))) >> shift;
    }
    out
}

fn samples(coefficients: &[i64; 64]) -> [u8; 64] {
    let mut between = [0; 64];
    for column in 0..8 {
        let values = transform(std::array::from_fn(|row| coefficients[row * 8 + column]), 11);
        (0..8).for_each(|row| between[row * 8 + column] = values[row]);
    }
    let mut out = [0; 64];
    for row in 0..8 {
        let values = transform(std::array::from_fn(|column| between[row * 8 + column]), 18);
        (0..8).for_each(|column| out[row * 8 + column] = (values[column] + 128).clamp(0, 255) as u8);
    }
    out
}

/// Reads the coefficients of a picture.
pub(crate) fn coefficients(bytes: &[u8]) -> PlainCoefficients {
    let order = zigzag();
    let mut quants = vec![[0i64; 64]; 4];
    let mut codes = vec![Codes::new(); 32];
    let (mut width, mut height, mut interval) = (0, 0, 0);
    let mut components: Vec<PlainComponent> = Vec::new();
    let mut at = 2;
    loop {
        let (marker, length) = (bytes[at + 1], usize::from(bytes[at + 2]) << 8 | usize::from(bytes[at + 3]));
        let body = &bytes[at + 4..at + 2 + length];
        at += 2 + length;
        let number = |at: usize| usize::from(body[at]) << 8 | usize::from(body[at + 1]);
        match marker {
            0xdb => {
                for table in body.chunks(65) {
                    for (value, place) in table[1..].iter().zip(&order) {
                        quants[usize::from(table[0])][*place] = i64::from(*value);
                    }
                }
            }
            0xc4 => {
                let mut body = body;
                while !body.is_empty() {
                    let table = &mut codes[usize::from(body[0])];
                    table.clear();
                    let (mut code, mut symbol) = (0, 17);
                    for length in 1..=16 {
                        for _ in 0..body[length] {
                            table.insert((length as u32, code), body[symbol]);
                            (code, symbol) = (code + 1, symbol + 1);
                        }
                        code <<= 1;
                    }
                    body = &body[symbol..];
                }
            }
            0xc0 => {
                (height, width) = (number(1), number(3));
                for entry in body[6..].chunks(3) {
                    let (across, down) = (usize::from(entry[1] >> 4), usize::from(entry[1] & 15));
                    let quant = usize::from(entry[2]);
                    components.push(PlainComponent {
                        across,
                        down,
                        quant,
                        dc: 0,
                        ac: 0,
                        blocks: Vec::new(),
                        blocks_across: 0,
                        width: 0,
                        samples: Vec::new(),
                    });
                }
            }
            0xdd => interval = number(0),
            0xda => {
                for (component, entry) in components.iter_mut().zip(body[1..].chunks(2)) {
                    (component.dc, component.ac) = (usize::from(entry[1] >> 4), usize::from(entry[1] & 15) + 16);
                }
                break;
            }
            _ => {}
        }
    }
    if let [grey] = &mut components[..] {
        (grey.across, grey.down) = (1, 1);
    }
    let (most_across, most_down) = (components[0].across, components[0].down);
    let mcus = [width.div_ceil(most_across * 8), height.div_ceil(most_down * 8)];
    for component in &mut components {
        component.blocks_across = mcus[0] * component.across;
        component.blocks = vec![[0; 64]; component.blocks_across * mcus[1] * component.down];
    }
    let mut bits = PlainBits { bytes, at, bit: 0 };
    let mut last = vec![0; components.len()];
    for mcu in 0..mcus[0] * mcus[1] {
        if interval > 0 && mcu > 0 && mcu % interval == 0 {
            bits.restart();
            last.fill(0);
        }
        for (component, last) in components.iter_mut().zip(&mut last) {
            for block in 0..component.across * component.down {
                let mut coefficients = [0; 64];
                let size = bits.symbol(&codes[component.dc]);
                *last += bits.value(size);
                coefficients[0] = *last;
                let mut k = 1;
                while k < 64 {
                    let symbol = bits.symbol(&codes[component.ac]);
                    if symbol == 0 {
                        break;
                    }
                    k += usize::from(symbol >> 4);
                    coefficients[k] = bits.value(symbol & 15);
                    k += 1;
                }
                let x = mcu % mcus[0] * component.across + block % component.across;
                let y = mcu / mcus[0] * component.down + block / component.across;
                component.blocks[y * component.blocks_across + x] = coefficients;
            }
        }
    }
    PlainCoefficients { width, height, components, quants }
}

/// Decodes a picture.
pub(crate) fn decode(bytes: &[u8]) -> PlainPicture {
    let order = zigzag();
    let PlainCoefficients { width, height, mut components, quants } = coefficients(bytes);
    for component in &mut components {
        component.width = component.blocks_across * 8;
        component.samples = vec![0; component.blocks.len() * 64];
        for (number, block) in component.blocks.iter().enumerate() {
            let mut factors = [0; 64];
            for (value, place) in block.iter().zip(&order) {
                factors[*place] = value * quants[component.quant][*place];
            }
            let (left, top) = (number % component.blocks_across * 8, number / component.blocks_across * 8);
            for (at, sample) in samples(&factors).into_iter().enumerate() {
                component.samples[(top + at / 8) * component.width + left + at % 8] = sample;
            }
        }
    }
    let rgb = (0..width * height).map(|at| pixel(&components, [width, height], at % width, at / width)).collect();
    PlainPicture { width, height, rgb }
}

/// Returns the sample of a component at a pixel, in 64ths.
fn value(component: &PlainComponent, luma: &PlainComponent, [width, height]: [usize; 2], x: usize, y: usize) -> i64 {
    // 3/4 of the nearest sample and 1/4 of the next nearest, where a component has half the samples.
    let taps = |at: usize, size: usize, ratio: usize| {
        let last = size.div_ceil(ratio) - 1;
        match ratio {
            1 => [(at, 4), (at, 0)],
            _ if at.is_multiple_of(2) => [(at / 2, 3), ((at / 2).max(1) - 1, 1)],
            _ => [(at / 2, 3), ((at / 2 + 1).min(last), 1)],
        }
    };
    let mut sum = 0;
    for (x, across) in taps(x, width, luma.across / component.across) {
        for (y, down) in taps(y, height, luma.down / component.down) {
            sum += i64::from(component.samples[y * component.width + x]) * across * down * 4;
        }
    }
    sum
}

fn pixel(components: &[PlainComponent], size: [usize; 2], x: usize, y: usize) -> [u8; 3] {
    let of = |component: &PlainComponent| value(component, &components[0], size, x, y);
    let byte = |value: i64| ((value + 32) >> 6).clamp(0, 255) as u8;
    let luma = of(&components[0]);
    let [_, blue, red] = components else { return [byte(luma); 3] };
    let (blue, red) = (of(blue) - 128 * 64, of(red) - 128 * 64);
    // The factors of BT.601 without their whole parts, in units of 2^-15.
    let part = |value: i64, of: f64| (value * (of * 32_768.0).round() as i64 + (1 << 14)) >> 15;
    [
        byte(luma + red + part(red, 0.402)),
        byte(luma - red + part(red, 0.285_864) - part(blue, 0.344_136)),
        byte(luma + 2 * blue - part(blue, 0.228)),
    ]
}

impl PlainPicture {
    /// Resizes a rectangle of the picture: antialiased bilinear in `f64`, like PIL's algorithm before rounding.
    pub(crate) fn resized(
        &self,
        [left, top, width, height]: [f64; 4],
        [columns, rows]: [usize; 2],
        readable: [(u32, u32); 2],
    ) -> Vec<[f64; 3]> {
        let across = weights(left, width, columns, readable[0]);
        let down = weights(top, height, rows, readable[1]);
        let mut out = Vec::new();
        for row in &down {
            for column in &across {
                let mut sum = [0.0; 3];
                for (y, a) in row {
                    for (x, b) in column {
                        let pixel = self.rgb[y * self.width + x];
                        (0..3).for_each(|channel| sum[channel] += f64::from(pixel[channel]) * a * b);
                    }
                }
                out.push(sum);
            }
        }
        out
    }
}

fn weights(from: f64, extent: f64, count: usize, readable: (u32, u32)) -> Vec<Vec<(usize, f64)>> {
    let scale = extent / count as f64;
    let radius = scale.max(1.0);
    let of = |at: usize| {
        let center = from + (at as f64 + 0.5) * scale;
        let weight = |x: u32| (1.0 - ((f64::from(x) + 0.5 - center) / radius).abs()).max(0.0);
        let all = (readable.0..readable.1).map(|x| (x as usize, weight(x))).filter(|(_, weight)| *weight > 0.0);
        let all: Vec<(usize, f64)> = all.collect();
        let sum: f64 = all.iter().map(|(_, weight)| weight).sum();
        all.into_iter().map(|(x, weight)| (x, weight / sum)).collect()
    };
    (0..count).map(of).collect()
}
