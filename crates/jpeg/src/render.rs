//! Renders a request: decodes, resamples and converts to RGB.

use crate::{
    bits::ScanOrder,
    error::Error,
    header::{Component, Jpeg},
    huffman::{HuffmanSpec, Lookup, Pairs, Skip},
    kernel::{Portable, RowWork, STRIP, SimdKernel, Strip},
    output::{Output, OutputLayout},
    plan::{CropPlan, PictureRequest, points},
    progressive::{Coefficients, Kept},
    scalable::{PackedLayout, ScalableMemory},
    scan::{ScanState, Tables},
    taps::Axis,
    vector::VectorKernel,
    window::Window,
};

/// A thread's working memory, which is reused for the next picture.
#[derive(Debug)]
pub struct Scratch {
    window: Window,
    tables: Cached,
    plan: CropPlan,
    coefficients: Coefficients,
    samples: Vec<u8>,
    tile: Vec<Strip>,
    strips: [Vec<Strip>; 3],
    orders: [ScanOrder; 2],
    scalable: Option<Box<ScalableMemory>>,
    instructions: Instructions,
}

#[derive(Clone, Copy, Debug)]
enum Instructions {
    Portable,
    Vector(VectorKernel),
}

/// The tables of the last picture. Most pictures have the same tables.
#[derive(Debug)]
struct Cached {
    dc: [Option<Built<Lookup>>; 4],
    ac: [Option<Built<(Lookup, Pairs, Skip)>>; 4],
    quants: [[i16; 64]; 3],
}

/// A table, and the specification that it was built from.
type Built<T> = (Spec, Box<T>);

/// The specification of a Huffman table, as owned data.
#[derive(Debug, PartialEq, Eq)]
struct Spec {
    counts: [u8; 16],
    symbols: Vec<u8>,
}

impl Spec {
    fn is(&self, spec: HuffmanSpec<'_>) -> bool {
        self.counts == *spec.counts && self.symbols == spec.symbols
    }

    fn of(spec: HuffmanSpec<'_>) -> Self {
        Self { counts: *spec.counts, symbols: spec.symbols.to_vec() }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Scratch {
    /// Creates working memory for a thread.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Instructions::detect())
    }

    /// Creates working memory for a decoder without vector instructions, which is slower and gives the same results.
    #[must_use]
    pub fn portable() -> Self {
        Self::with(Instructions::Portable)
    }

    /// Frees each buffer that has grown beyond `bytes`, so that one giant picture does not hold memory for ever.
    pub fn shrink_to(&mut self, bytes: usize) {
        if self.samples.capacity() > bytes {
            self.samples = Vec::new();
        }
        self.coefficients.shrink_to(bytes);
        if size_of_val(&*self.tile) > bytes {
            self.tile = Vec::new();
        }
        for strip in &mut self.strips {
            if size_of_val(&**strip) > bytes {
                *strip = Vec::new();
            }
        }
    }

    fn with(instructions: Instructions) -> Self {
        Self {
            window: Window::default(),
            tables: Cached { dc: Default::default(), ac: Default::default(), quants: [[0; 64]; 3] },
            plan: CropPlan::default(),
            coefficients: Coefficients::default(),
            samples: Vec::new(),
            tile: Vec::new(),
            strips: Default::default(),
            orders: [ScanOrder::new(false), ScanOrder::new(true)],
            scalable: None,
            instructions,
        }
    }
}

impl Scratch {
    /// Decodes the pixels of a request from a packed picture.
    pub(crate) fn render_scalable(
        &mut self,
        layout: &PackedLayout<'_>,
        request: &PictureRequest,
        output: &mut impl Output,
    ) -> Result<(), Error> {
        layout.jpeg.check_request(request);
        let instructions = self.instructions;
        let work = ScalableRender { layout, request, scratch: self, output };
        match instructions {
            Instructions::Portable => Portable.run(work),
            Instructions::Vector(vector) => vector.run(work),
        }
    }
}

impl Instructions {
    fn detect() -> Self {
        VectorKernel::detect().map_or(Self::Portable, Self::Vector)
    }
}

impl Jpeg<'_> {
    /// Decodes the pixels of a request.
    ///
    /// # Errors
    /// Returns an error when the picture is broken or truncated where it is read. The output may have received some of
    /// it.
    ///
    /// # Panics
    /// Panics when the request does not lie within the picture.
    pub fn render(
        &self,
        request: &PictureRequest,
        scratch: &mut Scratch,
        output: &mut impl Output,
    ) -> Result<(), Error> {
        self.check_request(request);
        let instructions = scratch.instructions;
        let work = JpegRender { jpeg: self, request, scratch, output };
        match instructions {
            Instructions::Portable => Portable.run(work),
            Instructions::Vector(vector) => vector.run(work),
        }
    }

    /// Returns a rough upper bound of the bytes of memory that [`render`](Self::render) takes.
    #[must_use]
    pub fn render_bytes(&self, request: &PictureRequest) -> u64 {
        let [across, down] = sides(self, request);
        let components = self.components().iter().zip(self.components[..1].iter().cycle());
        // Chroma never has more samples than luma. Fewer are counted only where nothing is scaled down.
        let planes: u64 = components.map(|(one, luma)| plane_bytes(request, one, luma, [across, down])).sum();
        let rows = across.max(down) + u64::from(request.x.pixels.max(request.y.pixels)) * 3;
        let coefficients = if self.is_progressive() {
            // For each sample of a kept block a value of two bytes, and at most a quarter more; for each block of the
            // picture a set.
            planes * 5 / 2 + self.blocks() * size_of::<u64>() as u64
        } else {
            0
        };
        planes + coefficients + rows * size_of::<Strip>() as u64 + FIXED_BYTES
    }

    pub(crate) fn check_request(&self, request: &PictureRequest) {
        for (axis, size) in [request.x, request.y].iter().zip(self.size) {
            let (low, high) = axis.readable;
            assert!(low < high && high <= size, "pixels {low} to {high} of {size}");
            assert!(axis.pixels > 0, "no pixels");
            let end = axis.from + axis.extent;
            assert!(axis.from >= 0.0 && axis.extent > 0.0 && end <= f64::from(size) + 1.0, "{axis:?} of {size}");
        }
    }

    /// Returns the number of blocks of an MCU.
    fn mcu_blocks(&self) -> u32 {
        self.components().iter().map(|component| component.sampling[0] * component.sampling[1]).sum()
    }

    /// Returns the number of blocks of the picture.
    pub(crate) fn blocks(&self) -> u64 {
        self.mcus().into_iter().chain([self.mcu_blocks()]).map(u64::from).product()
    }

    /// Rejects a picture that is too short for its size, before memory is allocated: a block has at least two codes, in
    /// a progressive picture only that of its DC coefficient. Rows of MCUs from `bottom` on do not count.
    pub(crate) fn check_length(&self, bottom: u32) -> Result<(), Error> {
        let first_of_last_row = u64::from(bottom - 1) * u64::from(self.mcus()[0]);
        let codes = if self.is_progressive() { 1 } else { 2 };
        let bits = first_of_last_row * u64::from(self.mcu_blocks()) * codes;
        if bits / 8 > (self.bytes.len() - self.scan_at) as u64 { Err(Error::Truncated) } else { Ok(()) }
    }
}

/// The memory for the tables, the window, and everything else that does not depend on the picture.
const FIXED_BYTES: u64 = 256 << 10;

/// Returns upper bounds of the luma samples that are read, horizontally and vertically.
fn sides(jpeg: &Jpeg<'_>, request: &PictureRequest) -> [u64; 2] {
    let scale = f64::from(points(request)) / 8.0;
    let side = |axis: &Axis, size: u32| {
        let step = (axis.extent * scale / f64::from(axis.pixels)).max(1.0);
        // The surroundings of the crop: the support of its first and last pixels, and the rest of their MCUs.
        let read = axis.extent * scale + 2.0 * step + 32.0;
        read.min(f64::from(size) * scale + 32.0).ceil() as u64
    };
    [side(&request.x, jpeg.size[0]), side(&request.y, jpeg.size[1])]
}

fn plane_bytes(request: &PictureRequest, component: &Component, luma: &Component, [across, down]: [u64; 2]) -> u64 {
    let is_whole = points(request) == 8;
    let part = |axis: usize| {
        if is_whole { u64::from(luma.sampling[axis] / component.sampling[axis].max(1)).max(1) } else { 1 }
    };
    (across.div_ceil(part(0)) + 32) * (down.div_ceil(part(1)) + 64)
}

/// The work of [`Jpeg::render`], compiled for each kind of processor.
struct JpegRender<'w, 'b, O> {
    jpeg: &'w Jpeg<'b>,
    request: &'w PictureRequest,
    scratch: &'w mut Scratch,
    output: &'w mut O,
}

impl<O: Output> RowWork for JpegRender<'_, '_, O> {
    type Outcome = Result<(), Error>;

    #[inline(always)]
    fn run<K: SimdKernel>(self, kernel: K) -> Result<(), Error> {
        let Self { jpeg, request, scratch, output } = self;
        let Scratch { window, tables, plan, coefficients, samples, tile, strips, orders, .. } = scratch;
        let transposed = request.transposed;
        plan.make(jpeg, request);
        jpeg.check_length(plan.mcus[1].1)?;
        samples.resize(plan.bytes, 0);
        tables.read_quants(jpeg, transposed);
        if jpeg.is_progressive() {
            let kept = Kept { mcus: plan.mcus, points: plan.planes.map(|plane| plane.points), transposed };
            coefficients.read(kernel, jpeg, &kept, window)?;
            coefficients.transform(kernel, plan, jpeg.component_count, transposed, &tables.quants, samples);
        } else {
            let order = &orders[usize::from(transposed)];
            let tables = tables.of(jpeg)?;
            ScanState::new(jpeg, plan, transposed, &tables, order, window)
                .run(kernel, jpeg, plan, transposed, samples)?;
        }
        resample(kernel, jpeg.component_count, plan, request, samples, tile, strips, output);
        Ok(())
    }
}

/// The work of [`Scratch::render_scalable`], compiled for each kind of processor.
struct ScalableRender<'w, 'b, O> {
    layout: &'w PackedLayout<'b>,
    request: &'w PictureRequest,
    scratch: &'w mut Scratch,
    output: &'w mut O,
}

impl<O: Output> RowWork for ScalableRender<'_, '_, O> {
    type Outcome = Result<(), Error>;

    #[inline(always)]
    fn run<K: SimdKernel>(self, kernel: K) -> Result<(), Error> {
        let Self { layout, request, scratch, output } = self;
        let Scratch { plan, samples, tile, strips, scalable, .. } = scratch;
        plan.make(&layout.jpeg, request);
        samples.resize(plan.bytes, 0);
        scalable.get_or_insert_default().decode(kernel, layout, plan, request.transposed, samples)?;
        resample(kernel, layout.jpeg.component_count, plan, request, samples, tile, strips, output);
        Ok(())
    }
}

impl Cached {
    /// Reads the quantisation tables of a picture's components.
    fn read_quants(&mut self, jpeg: &Jpeg<'_>, transposed: bool) {
        for (quant, component) in self.quants.iter_mut().zip(jpeg.components()) {
            let written = jpeg.quant(component);
            for (at, value) in quant.iter_mut().enumerate() {
                *value = written[if transposed { at >> 3 | (at & 7) << 3 } else { at }] as i16;
            }
        }
    }

    /// Returns the tables of a baseline picture's components.
    fn of(&mut self, jpeg: &Jpeg<'_>) -> Result<[Tables<'_>; 3], Error> {
        for component in jpeg.components() {
            let (slot, spec) = (&mut self.dc[usize::from(component.dc)], jpeg.dc_spec(component));
            if !slot.as_ref().is_some_and(|(of, _)| of.is(spec)) {
                *slot = Some((Spec::of(spec), Box::new(Lookup::dc(spec)?)));
            }
            let (slot, spec) = (&mut self.ac[usize::from(component.ac)], jpeg.ac_spec(component));
            if !slot.as_ref().is_some_and(|(of, _)| of.is(spec)) {
                *slot = Some((Spec::of(spec), Box::new((Lookup::ac(spec)?, Pairs::new(spec), Skip::new(spec)))));
            }
        }
        const BUILT: &str = "built above";
        let of = |component: &Component, quant| {
            let (_, dc) = self.dc[usize::from(component.dc)].as_ref().expect(BUILT);
            let (lookup, pairs, skip) = &*self.ac[usize::from(component.ac)].as_ref().expect(BUILT).1;
            Tables { dc, ac: lookup, pairs, skip, quant }
        };
        let first = of(&jpeg.components[0], &self.quants[0]);
        let mut tables = [first; 3];
        for (at, component) in jpeg.components().iter().enumerate() {
            tables[at] = of(component, &self.quants[at]);
        }
        Ok(tables)
    }
}

/// Resamples the planes and passes the pixels to the output.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
fn resample<K: SimdKernel, O: Output>(
    kernel: K,
    components: usize,
    plan: &CropPlan,
    request: &PictureRequest,
    samples: &[u8],
    tile: &mut Vec<Strip>,
    strips: &mut [Vec<Strip>; 3],
    output: &mut O,
) {
    let [columns, rows] = request.result_size().map(|side| side as usize);
    let [across, down] = if request.transposed { [1, 0] } else { [0, 1] };
    for x in (0..columns).step_by(STRIP) {
        for (plane, strip) in plan.planes[..components].iter().zip(&mut *strips) {
            let taps = plan.taps[across].of(plane.is_halved[across]);
            let halved = usize::from(plane.is_halved[down]);
            let (top, height) = (plan.tops[halved] as usize, plan.heights[halved] as usize);
            let firsts = taps.firsts[x..].first_chunk().expect("filled up to a multiple of the strip");
            let pairs = &taps.pairs[x * taps.pairs_per_pixel..][..STRIP * taps.pairs_per_pixel];
            let taps = plan.taps[down].of(plane.is_halved[down]);
            // Taps with weight 0 may lie on rows after the last.
            tile.resize(height + 2 * taps.pairs_per_pixel, [0; STRIP]);
            for (chunk, out) in tile.as_chunks_mut::<STRIP>().0[..height / STRIP].iter_mut().enumerate() {
                kernel.across(samples, plane.start + top + chunk * STRIP, plane.stride, firsts, pairs, out);
            }
            strip.resize(rows, [0; STRIP]);
            kernel.down(tile, &taps.firsts, &taps.pairs, strip);
        }
        let strips = strips.each_ref().map(Vec::as_slice);
        // Where the number is a constant, an output copies the pixels without a call.
        match columns - x {
            rest @ ..STRIP => convert(kernel, components, strips, (x, rest), output),
            _ => convert(kernel, components, strips, (x, STRIP), output),
        }
    }
}

/// Converts `count` resampled columns from `x` on to RGB and passes them to the output.
#[inline(always)]
fn convert<K: SimdKernel, O: Output>(
    kernel: K,
    components: usize,
    [luma, blue, red]: [&[Strip]; 3],
    (x, count): (usize, usize),
    output: &mut O,
) {
    let is_interleaved = O::LAYOUT == OutputLayout::Interleaved;
    if components == 1 {
        for (y, luma) in luma.iter().enumerate() {
            output.put(x, y, &kernel.grey(luma, is_interleaved), count);
        }
    } else {
        for (y, ((luma, blue), red)) in luma.iter().zip(blue).zip(red).enumerate() {
            output.put(x, y, &kernel.colour([luma, blue, red], is_interleaved), count);
        }
    }
}
