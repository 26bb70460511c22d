//! What operations are in a job file, and their plans.

use spdl_canvas::ResamplePlan;
use spdl_types::Draw;

use super::*;
use crate::Size;

#[test]
fn an_operation_is_written_by_the_name_that_it_has_in_a_job_file() {
    assert_eq!(ImageOp::examples().len(), ImageOp::CATALOG.len());
    for (op, (name, ..)) in ImageOp::examples().into_iter().zip(ImageOp::CATALOG) {
        op.check().unwrap();
        let text = serde_json::to_string(&op).unwrap();
        assert!(text.starts_with(&format!("{{\"{name}\":{{")), "{name}: {text}");
        assert_eq!(serde_json::from_str::<ImageOp>(&text).unwrap(), op);
    }
}

fn planned(size: [u32; 2], ops: &[ImageOp]) -> ResamplePlan {
    let plan = PicturePlan::new(size, ops, &mut Draw::new(1, 2, 3), &mut |_| Some([10.0, 20.0, 30.0, 60.0])).unwrap();
    assert_eq!(plan.then, []);
    plan.decode
}

fn crop_box(margin: f32) -> ImageOp {
    ImageOp::CropBox(CropBox { field: "xml".to_owned(), margin })
}

#[test]
fn resize_and_center_crop_read_a_fraction_of_the_picture_once() {
    let ops = [
        ImageOp::Resize(Resize::to(Size::Square(256))),
        ImageOp::CenterCrop(CenterCrop { size: Size::HeightWidth([224, 224]) }),
    ];
    let plan = planned([500, 375], &ops);
    // 500x375 -> 341x256 -> 224x224: 58 and 16 pixels of the resized picture are cut off.
    let (x, y) = (plan.x.unwrap(), plan.y.unwrap());
    assert!((x.from - 58.0 * 500.0 / 341.0).abs() < 1e-9 && (x.extent - 224.0 * 500.0 / 341.0).abs() < 1e-9);
    assert!((y.from - 16.0 * 375.0 / 256.0).abs() < 1e-9 && (y.extent - 224.0 * 375.0 / 256.0).abs() < 1e-9);
    assert_eq!((x.readable, y.readable), ((0, 500), (0, 375)), "the border sees its neighbours");
    assert_eq!((x.place, x.pixels, y.place, y.pixels), (0, 224, 0, 224));
}

#[test]
fn a_crop_before_the_resize_hides_its_surroundings() {
    let plan = planned([100, 100], &[crop_box(0.0), ImageOp::Resize(Resize::to(Size::HeightWidth([8, 8])))]);
    let (x, y) = (plan.x.unwrap(), plan.y.unwrap());
    assert_eq!((x.readable, x.from, x.extent), ((10, 30), 10.0, 20.0));
    assert_eq!((y.readable, y.from, y.extent), ((20, 60), 20.0, 40.0));
}

#[test]
fn a_box_is_widened_and_clipped() {
    let plan = planned([40, 100], &[crop_box(0.5), ImageOp::Resize(Resize::to(Size::HeightWidth([8, 8])))]);
    assert_eq!(plan.x.unwrap().readable, (0, 40));
    assert_eq!(plan.y.unwrap().readable, (0, 80));
}

#[test]
fn a_box_that_leaves_nothing_is_an_error() {
    for edges in [[50.0, 0.0, 60.0, 10.0], [5.0, 5.0, 5.0, 9.0], [9.0, 5.0, 5.0, 9.0], [f32::NAN, 0.0, 9.0, 9.0]] {
        let result = PicturePlan::new([40, 100], &[crop_box(0.0)], &mut Draw::new(1, 2, 3), &mut |_| Some(edges));
        assert_eq!(result.unwrap_err(), OperationProblem::BoxEmpty { field: "xml".to_owned() }, "{edges:?}");
    }
}

#[test]
fn a_small_picture_is_padded_round_its_middle() {
    let plan = planned([5, 9], &[ImageOp::CenterCrop(CenterCrop { size: Size::Square(8) })]);
    let (x, y) = (plan.x.unwrap(), plan.y.unwrap());
    assert_eq!((x.place, x.pixels, x.size, x.from, x.extent), (1, 5, 8, 0.0, 5.0));
    assert_eq!((y.place, y.pixels, y.size), (0, 8, 8));
    assert_eq!((y.from, y.extent), (0.0, 8.0), "half a pixel of spare rounds to even");
}

#[test]
fn what_a_crop_cut_off_does_not_come_back_in_the_padding() {
    let ops = [
        ImageOp::Resize(Resize::to(Size::HeightWidth([64, 64]))),
        ImageOp::CenterCrop(CenterCrop { size: Size::Square(16) }),
        ImageOp::CenterCrop(CenterCrop { size: Size::Square(32) }),
    ];
    let x = planned([128, 128], &ops).x.unwrap();
    assert_eq!((x.place, x.pixels, x.size, x.from, x.extent), (8, 16, 32, 48.0, 32.0));
}

#[test]
fn cutting_a_mirrored_canvas_is_cutting_its_other_side() {
    let flip = ImageOp::RandomFlip(RandomFlip { p: 1.0 });
    let resize = ImageOp::Resize(Resize::to(Size::HeightWidth([7, 7])));
    let center = ImageOp::CenterCrop(CenterCrop { size: Size::Square(4) });
    let plain = planned([7, 7], std::slice::from_ref(&center));
    let mirrored = planned([7, 7], &[flip.clone(), center.clone()]);
    assert_eq!(plain.x.unwrap().from, 2.0);
    assert_eq!(mirrored.x.unwrap().from, 1.0);
    assert!(mirrored.mirrored && !plain.mirrored);
    assert!(!planned([9, 9], &[flip.clone(), resize, flip]).mirrored);
}

proptest::proptest! {
    #[test]
    fn any_steps_read_inside_the_picture_and_fill_inside_the_result(
        width in 1u32..600, height in 1u32..600, id in 0u64..1000,
        steps in proptest::collection::vec(
            (0usize..6, 1u32..400, 1u32..400, 0.0f32..1.0), 1..6),
    ) {
        let ops: Vec<ImageOp> = steps.into_iter().map(|(kind, a, b, p)| match kind {
            0 => ImageOp::RandomResizedCrop(RandomResizedCrop {
                size: Size::HeightWidth([a, b]), scale: [0.08, 1.0], ratio: [0.75, 1.333],
                interpolation: Interpolation::Bilinear, antialias: true, full_decode: false,
            }),
            1 => ImageOp::Resize(Resize::to(Size::Square(a))),
            2 => ImageOp::Resize(Resize::to(Size::HeightWidth([a, b]))),
            3 => ImageOp::CenterCrop(CenterCrop { size: Size::HeightWidth([a, b]) }),
            4 => crop_box(p),
            _ => ImageOp::RandomFlip(RandomFlip { p }),
        }).collect();
        let mut size = Some([height, width]);
        for op in &ops {
            size = op.output_size(size);
        }
        let mut draw = Draw::new(0, 0, id);
        let outcome = PicturePlan::new([width, height], &ops, &mut draw, &mut |_| Some([0.0, 0.0, 1000.0, 1000.0]));
        if let Ok(PicturePlan { decode: plan, then, .. }) = outcome {
            proptest::prop_assert!(then.is_empty());
            for (span, picture) in [(plan.x, width), (plan.y, height)] {
                let Some(span) = span else { continue };
                proptest::prop_assert!(span.readable.0 < span.readable.1 && span.readable.1 <= picture);
                proptest::prop_assert!(span.from >= f64::from(span.readable.0) && span.extent > 0.0);
                proptest::prop_assert!(span.from + span.extent <= f64::from(span.readable.1) + 1e-9);
                proptest::prop_assert!(span.pixels >= 1 && span.place + span.pixels <= span.size);
            }
            if let (Some([height, width]), Some(x), Some(y)) = (size, plan.x, plan.y) {
                proptest::prop_assert_eq!([y.size, x.size], [height, width]);
            }
        }
    }
}
