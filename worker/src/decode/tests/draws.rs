//! What random operations draw: it never changes, and it has the right distribution.

use spdl_canvas::PixelOp;
use spdl_job::{ColumnKind, ImageOp, PicturePlan};
use spdl_types::Draw;

use super::{plan_numbers::PlanNumbers, *};

const SAMPLES: u64 = 24_000;

/// Returns the operations of a job's only column.
fn ops_of(job: &Job) -> Vec<ImageOp> {
    match &job.columns[0].kind {
        ColumnKind::Image(column) => column.ops.clone(),
        other => panic!("{other:?}"),
    }
}

/// Returns the plans of many samples for a picture of 40x30 pixels.
fn plans(ops: &str) -> impl Iterator<Item = PicturePlan> {
    let ops = ops_of(&job(&[&image_column(&format!("{{ resize = [30, 40] }}, {ops}"), "")]));
    (0..SAMPLES).map(move |id| {
        let mut no_box = |field: &str| panic!("no box in {field}");
        PicturePlan::new([40, 30], &ops, &mut Draw::new(17, 1, id), &mut no_box).unwrap()
    })
}

/// Asserts that counts of equally likely outcomes are within five standard deviations of their chi-square statistic.
fn assert_uniform(counts: &[u64]) {
    let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let statistic: f64 = counts.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum();
    let freedom = counts.len() as f64 - 1.0;
    assert!(statistic < freedom + 5.0 * (2.0 * freedom).sqrt(), "{statistic} for {freedom}: {counts:?}");
}

/// Asserts that values are uniform in [low, high).
fn assert_uniform_in(values: &[f64], low: f64, high: f64) {
    let mut counts = [0; 20];
    for value in values {
        let place = (value - low) / (high - low);
        assert!((0.0..=1.0).contains(&place), "{value} is not in {low}..{high}");
        counts[((place * 20.0) as usize).min(19)] += 1;
    }
    assert_uniform(&counts);
}

/// Asserts that something happens with this probability.
fn assert_happens(count: usize, p: f64) {
    let (expected, deviation) = (SAMPLES as f64 * p, (SAMPLES as f64 * p * (1.0 - p)).sqrt());
    assert!((count as f64 - expected).abs() <= 5.0 * deviation, "{count} for {expected}");
}

#[test]
fn color_jitter_draws_factors_and_their_order_uniformly() {
    let ops = "{ color_jitter = { brightness = 0.4, contrast = [0.5, 0.8], saturation = 2, hue = 0.1 } }";
    let mut orders = std::collections::BTreeMap::<Vec<u8>, u64>::new();
    let mut factors: [Vec<f64>; 4] = Default::default();
    for plan in plans(ops) {
        let mut order = Vec::new();
        for op in plan.then {
            let (which, factor) = match op {
                PixelOp::Brightness(factor) => (0, factor),
                PixelOp::Contrast(factor) => (1, factor),
                PixelOp::Saturation(factor) => (2, factor),
                PixelOp::Hue(turn) => (3, turn),
                other => panic!("{other:?}"),
            };
            order.push(which);
            factors[usize::from(which)].push(factor.into());
        }
        *orders.entry(order).or_default() += 1;
    }
    assert_eq!(orders.len(), 24, "{orders:?}");
    assert_uniform(&orders.into_values().collect::<Vec<_>>());
    for (factors, (low, high)) in factors.iter().zip([(0.6, 1.4), (0.5, 0.8), (0.0, 3.0), (-0.1, 0.1)]) {
        assert_eq!(factors.len() as u64, SAMPLES);
        assert_uniform_in(factors, low, high);
    }
}

#[test]
fn what_is_left_out_is_not_changed() {
    for plan in plans("{ color_jitter = { brightness = [1, 1], hue = 0 } }").take(10) {
        assert_eq!(plan.then, []);
    }
}

#[test]
fn operations_happen_with_their_probability() {
    for (ops, p) in [
        ("\"random_grayscale\"", 0.1),
        ("\"random_invert\"", 0.5),
        ("{ random_autocontrast = 0.25 }", 0.25),
        ("{ random_equalize = 0.75 }", 0.75),
        ("{ random_posterize = { bits = 3, p = 0.3 } }", 0.3),
        ("{ random_solarize = 9 }", 0.5),
        ("{ random_adjust_sharpness = { sharpness_factor = 2, p = 0.9 } }", 0.9),
        ("{ random_invert = 0 }", 0.0),
        ("{ random_invert = 1 }", 1.0),
    ] {
        assert_happens(plans(ops).filter(|plan| !plan.then.is_empty()).count(), p);
    }
}

#[test]
fn standard_deviations_angles_and_places_are_uniform() {
    let sigmas: Vec<f64> = plans("{ gaussian_blur = { kernel_size = 5, sigma = [0.5, 3] } }")
        .map(|plan| match &plan.then[..] {
            // The ratio of two weights is exp(-0.5 / sigma^2).
            [PixelOp::Blur(weights)] => (-0.5 / f64::from(weights[1] / weights[0]).ln()).sqrt(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_uniform_in(&sigmas, 0.4999, 3.0001);
    let angles: Vec<f64> = plans("{ random_rotation = [-20, 70] }")
        .map(|plan| match &plan.then[..] {
            [PixelOp::Warp(warp)] => f64::from(-warp.factors[1]).atan2(warp.factors[0].into()).to_degrees(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_uniform_in(&angles, -20.001, 70.001);
    let places: Vec<[f64; 2]> = plans("{ random_crop = { size = [11, 21], padding = [10, 5] } }")
        .map(|plan| {
            [plan.decode.x, plan.decode.y].map(|span| span.map_or(0.0, |span| span.from - f64::from(span.place)))
        })
        .collect();
    // 60x40 pixels with the padding: 40 columns and 30 rows to begin at.
    let [mut columns, mut rows] = [vec![0; 40], vec![0; 30]];
    for [x, y] in places {
        columns[(x + 10.0) as usize] += 1;
        rows[(y + 5.0) as usize] += 1;
    }
    assert_uniform(&columns);
    assert_uniform(&rows);
}

#[test]
fn erased_rectangles_have_the_area_and_ratio_that_are_asked_for() {
    let mut erased = 0;
    for plan in plans("{ random_erasing = { p = 0.4, scale = [0.1, 0.2], ratio = [0.5, 2] } }") {
        let Some(PixelOp::Erase { place, size, .. }) = plan.then.first() else { continue };
        erased += 1;
        let [width, height] = size.map(f64::from);
        assert!(place[0] + size[0] <= 40 && place[1] + size[1] <= 30);
        let (area, ratio) = (width * height / 1200.0, height / width);
        assert!((0.085..0.22).contains(&area) && (0.4..2.4).contains(&ratio), "{size:?}");
    }
    assert_happens(erased, 0.4);
}

#[test]
fn augmentations_are_drawn_uniformly() {
    let kind = |op: &PixelOp| match op {
        PixelOp::Warp(warp) => format!("warp {:?}", warp.factors.map(|factor| factor.to_bits())),
        op => format!("{op:?}"),
    };
    let mut counts = std::collections::BTreeMap::<String, u64>::new();
    for plan in plans("{ rand_augment = { num_ops = 1 } }") {
        *counts.entry(plan.then.first().map_or_else(String::new, kind)).or_default() += 1;
    }
    // 9 of 14 have two signs; each of these is half as probable.
    assert_eq!(counts.len(), 5 + 2 * 9, "{counts:?}");
    let halves: Vec<u64> = counts.values().copied().filter(|count| *count < SAMPLES / 18).collect();
    assert_eq!(halves.len(), 18, "{counts:?}");
    assert_uniform(&halves);
    assert_uniform(&counts.values().copied().filter(|count| *count >= SAMPLES / 18).collect::<Vec<_>>());
    let strengths = plans("\"trivial_augment_wide\"").filter_map(|plan| match plan.then[..] {
        [PixelOp::Solarize(threshold)] => Some((threshold / 8.5).round() as usize),
        _ => None,
    });
    let mut counts = [0; 31];
    strengths.for_each(|strength| counts[strength] += 1);
    assert_uniform(&counts);
}

#[test]
fn mixes_have_chains_of_random_length_and_operations_and_weights_that_add_up_to_one() {
    let (mut depths, mut first, mut own) = ([0; 3], std::collections::BTreeMap::<String, u64>::new(), Vec::new());
    for plan in plans("{ aug_mix = { severity = 1, mixture_width = 2 } }") {
        let [PixelOp::Mix { own: of_picture, chains }] = &plan.then[..] else { panic!("{:?}", plan.then) };
        assert_eq!(chains.len(), 2);
        let sum = of_picture + chains.iter().map(|chain| chain.weight).sum::<f32>();
        assert!((sum - 1.0).abs() < 1e-6, "{sum}");
        own.push(f64::from(*of_picture));
        for chain in chains {
            depths[chain.ops.len() - 1] += 1;
        }
        let kind = match &chains[0].ops[0] {
            // Of no strength, all of them change no place, in two ways to say so.
            PixelOp::Warp(_) => "Warp".to_owned(),
            op => format!("{op:?}"),
        };
        *first.entry(kind).or_default() += 1;
    }
    assert_uniform(&depths);
    assert_uniform_in(&own, 0.0, 1.0);
    let warps = first.remove("Warp").unwrap_or_default();
    assert_happens(usize::try_from(warps).unwrap(), 5.0 / 13.0);
    assert_eq!(first.len(), 8, "{first:?}");
    assert_uniform(&first.into_values().collect::<Vec<_>>());
}

#[test]
fn one_of_several_operations_is_chosen_by_its_weight() {
    let choice = "{ random_choice = { transforms = [\"grayscale\", { random_invert = 1 }, { random_equalize = 1 }], p = [1, 0, 3] } }";
    let counts = plans(choice).fold([0; 3], |mut counts, plan| {
        counts[match plan.then[..] {
            [PixelOp::Grayscale] => 0,
            [PixelOp::Invert] => 1,
            [PixelOp::Equalize] => 2,
            ref other => panic!("{other:?}"),
        }] += 1;
        counts
    });
    assert_eq!(counts[1], 0);
    assert_happens(counts[0], 0.25);
    assert_happens(
        plans("{ random_apply = { transforms = [\"grayscale\"], p = 0.2 } }")
            .filter(|plan| !plan.then.is_empty())
            .count(),
        0.2,
    );
}

#[test]
fn draws_never_change() {
    let digest = |ops: &str| {
        let mut numbers = PlanNumbers::default();
        plans(ops).take(200).for_each(|plan| numbers.add(&plan));
        numbers.digest()
    };
    let cases = [
        (
            "{ color_jitter = { brightness = 0.4, contrast = 0.4, saturation = 0.4, hue = 0.1 } }",
            "1abd5e923d5971ce1817f51d4c6d3063",
        ),
        (
            "{ gaussian_blur = 5 }, { random_crop = { size = 20, padding = 3 } }, \"random_erasing\"",
            "f50652235784386dfbdb383f9e6a49f8",
        ),
        (
            "{ random_rotation = 30 }, { random_affine = { degrees = 9, translate = [0.1, 0.2], scale = [0.5, 2], shear = 5 } }",
            "9dd54f2ccc550009ad11d83b6e487c13",
        ),
        ("{ random_perspective = { p = 1 } }, \"random_vertical_flip\"", "592ca9aa3775df2ce0fe7b844f6805bf"),
        ("\"rand_augment\", \"trivial_augment_wide\"", "9e15179293d3ccbfc59ee26c7adecfad"),
        (
            "{ random_apply = { transforms = [\"random_flip\"] } }, { random_choice = [\"grayscale\", \"random_flip\"] }",
            "3489eb4c132a089a2c163a3a52635ffb",
        ),
        ("\"aug_mix\", { aug_mix = { alpha = 0.2, all_ops = false } }", "ac977d108930d4669dd36655afce5974"),
        (
            "\"random_flip\", \"random_grayscale\", { random_posterize = 4 }, \"random_invert\"",
            "061ca1c5cc5cb6389dcae8c6d671542a",
        ),
    ];
    assert_eq!(cases.map(|(ops, _)| digest(ops)), cases.map(|(_, expected)| expected));
}

#[test]
fn a_job_and_operations_on_decoded_pictures_give_the_same() {
    let steps = "{ random_resized_crop = { size = [64, 48] } }, \"random_flip\"";
    let jitter =
        "{ color_jitter = { brightness = 0.4, contrast = 0.4, saturation = 0.4, hue = 0.1 } }, \"random_equalize\"";
    let plain = job(&[&image_column(steps, "")]);
    let jittered = job(&[&image_column(&format!("{steps}, {jitter}"), "")]);
    let planar = job(&[&image_column(&format!("{steps}, {jitter}"), "dtype = \"f32\"\nlayout = \"nchw\"")]);
    let mut differences = 0;
    for id in 0..8 {
        let run = |job: &Job| decode(job, key(id), &[("jpg", CAT)]).unwrap().remove(0);
        let decoded = run(&plain);
        let mut draw = Draw::new(17, 1, id);
        let plan = PicturePlan::new([240, 160], &ops_of(&jittered), &mut draw, &mut |_| panic!("no box")).unwrap();
        let mut picture = spdl_operations::RgbPicture { pixels: decoded.as_slice().into(), size: [48, 64] };
        spdl_operations::run(&plan.then, &mut picture, &mut Default::default());
        let ours = run(&jittered);
        assert_eq!(ours, *picture.pixels);
        differences += usize::from(ours != decoded);
        let floats = run(&planar);
        let (values, _) = floats.as_chunks::<4>();
        for (at, pixel) in ours.chunks_exact(3).enumerate() {
            for channel in 0..3 {
                let value = f32::from_le_bytes(values[channel * 64 * 48 + at]);
                assert_eq!(value, f32::from(pixel[channel]) / 255.0);
            }
        }
    }
    assert!(differences >= 7, "{differences} of 8 pictures changed");
}

#[test]
fn padding_is_black_before_operations_change_it() {
    let inverted = picture("{ center_crop = 300 }, { random_invert = 1 }", "", CAT).unwrap();
    let plain = picture("{ center_crop = 300 }", "", CAT).unwrap();
    assert!(inverted.iter().zip(&plain).all(|(inverted, plain)| *inverted == !plain));
    assert_eq!(inverted[..3], [255; 3]);
}

#[test]
fn a_picture_that_operations_make_too_large_is_a_bad_sample() {
    let error = picture("{ resize = 16000 }, \"grayscale\", { center_crop = 8 }", "", CAT).unwrap_err().to_string();
    assert_eq!(
        error,
        "column `image`: field `jpg` is a picture that operations make 24000x16000; the limit is 134217728 pixels"
    );
    let small = Decoder::new(&job(&[&image_column("{ resize = [4000, 4000] }, \"grayscale\"", "")]), CLASSES).unwrap();
    let field = |name: &str| (name == "jpg").then(|| Bytes::from_static(CAT).into());
    let mut out = vec![0; 4000 * 4000 * 3];
    let error = small.with_memory_bytes(40 << 20).decode_sample(key(1), &field, &mut [FieldTarget::Fixed(&mut out)]);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("bytes to decode; 41943040 are for decoding"), "{error}");
}

/// Returns a number for a job file: usual ones, and odd ones.
fn number() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::*;
    prop_oneof![
        4 => (-0.2f64..3.0).prop_map(|number| format!("{number:?}")),
        2 => (0u32..60).prop_map(|number| number.to_string()),
        1 => prop::sample::select(vec!["nan", "inf", "-inf", "1e30", "-1e30", "1e-30", "0.0", "-0.0", "4294967295", "90", "255"])
            .prop_map(str::to_owned),
    ]
}

proptest::proptest! {
    #[test]
    fn parameters_that_a_job_accepts_work_on_pictures_of_every_size(
        width in 1u32..50, height in 1u32..50, id in 0u64..1000,
        steps in proptest::collection::vec((0usize..17, [number(), number(), number(), number()]), 1..4),
    ) {
        let ops: Vec<String> = steps.into_iter().map(|(kind, [a, b, c, d])| match kind {
            0 => format!("{{ color_jitter = {{ brightness = {a}, contrast = [{b}, {c}], saturation = {d}, hue = {b} }} }}"),
            1 => format!("{{ gaussian_blur = {{ kernel_size = {a}, sigma = [{b}, {c}] }} }}"),
            2 => format!("{{ pad = {{ padding = [{a}, {b}, {c}, {d}], padding_mode = \"symmetric\" }} }}"),
            3 => format!("{{ pad = {{ padding = {a}, padding_mode = \"reflect\" }} }}"),
            4 => format!("{{ random_crop = {{ size = [{a}, {b}], padding = {c}, pad_if_needed = true, fill = {d} }} }}"),
            5 => format!("{{ random_erasing = {{ p = 1, scale = [{a}, {b}], ratio = [{c}, {d}], value = 9 }} }}"),
            6 => format!("{{ random_rotation = {{ degrees = [{a}, {b}], expand = true, interpolation = \"bilinear\" }} }}"),
            7 => format!("{{ random_affine = {{ degrees = {a}, translate = [{b}, {c}], scale = [{d}, 1], shear = {a} }} }}"),
            8 => format!("{{ random_affine = {{ degrees = {a}, scale = [{b}, {c}], interpolation = \"bilinear\" }} }}"),
            9 => format!("{{ random_perspective = {{ distortion_scale = {a}, p = 1 }} }}"),
            10 => format!("{{ rand_augment = {{ num_ops = {a}, magnitude = {b}, num_magnitude_bins = {c} }} }}"),
            11 => format!("{{ trivial_augment_wide = {{ num_magnitude_bins = {a}, interpolation = \"bilinear\", fill = {b} }} }}"),
            12 => format!("{{ random_apply = {{ transforms = [{{ random_adjust_sharpness = {a} }}, \"random_vertical_flip\"], p = {b} }} }}"),
            13 => format!("{{ random_choice = {{ transforms = [\"random_equalize\", \"random_autocontrast\"], p = [{a}, {b}] }} }}"),
            15 => format!("{{ aug_mix = {{ severity = {a}, mixture_width = {b}, chain_depth = {c}, alpha = {d} }} }}"),
            14 => format!("{{ letterbox = {{ size = [{a}, {b}], fill = {c} }} }}"),
            _ => format!("{{ random_solarize = {a} }}, {{ random_posterize = {b} }}, {{ resize = [{c}, {d}] }}"),
        }).collect();
        let column = image_column(&format!("{}, {{ center_crop = 9 }}", ops.join(", ")), "");
        let text = format!("name = \"test\"\ndataset = \"here\"\nglobal_batch = 8\n[[column]]\n{column}");
        let facts = DatasetFacts::new(Fingerprint(7), 1000, 10);
        let Ok(job) = JobFile::parse(&text, "job.toml").and_then(|file| file.freeze(&facts)) else { return Ok(()) };
        let ops = PictureOps::new(ops_of(&job), 5);
        let pixels: Vec<u8> = (0..width * height * 3).map(|at| (at * 37 % 256) as u8).collect();
        let mut picture = spdl_operations::RgbPicture { pixels: pixels.into(), size: [width, height] };
        let limits = PictureLimits { side_pixels: 100, pixels: 1 << 22 };
        match ops.apply([1, id], &mut picture, &mut Default::default(), limits) {
            Ok(()) => proptest::prop_assert_eq!((picture.size, picture.pixels.len()), ([9, 9], 9 * 9 * 3)),
            Err(problem) => proptest::prop_assert!(matches!(problem, BadSampleProblem::GrowsTooLarge { .. }), "{}", problem),
        }
    }
}
