//! Compares cropping and resizing with plain reference implementations.

use spdl_job::{ImageColumn, PicturePlan};
use spdl_types::Draw;

use super::*;

/// Resizes with antialiased bilinear filtering in `f64`, pixel by pixel: what PIL computes, without its integers.
fn plain_resize(rgb: &image::RgbImage, [left, top, width, height]: [f64; 4], [rows, columns]: [u32; 2]) -> Vec<u8> {
    let weights = |from: f64, extent: f64, count: u32, limit: u32| -> Vec<Vec<(u32, f64)>> {
        let scale = extent / f64::from(count);
        let radius = scale.max(1.0);
        let of = |at: u32| {
            let center = from + (f64::from(at) + 0.5) * scale;
            let weight = |x: u32| (1.0 - ((f64::from(x) + 0.5 - center) / radius).abs()).max(0.0);
            let all: Vec<(u32, f64)> = (0..limit).map(|x| (x, weight(x))).filter(|(_, weight)| *weight > 0.0).collect();
            let sum: f64 = all.iter().map(|(_, weight)| weight).sum();
            all.into_iter().map(|(x, weight)| (x, weight / sum)).collect()
        };
        (0..count).map(of).collect()
    };
    let across = weights(left, width, columns, rgb.width());
    let down = weights(top, height, rows, rgb.height());
    let mut out = Vec::new();
    for row in &down {
        for column in &across {
            for channel in 0..3 {
                let value = |(y, a): &(u32, f64)| -> f64 {
                    let pixel = |(x, b): &(u32, f64)| f64::from(rgb.get_pixel(*x, *y).0[channel]) * b;
                    a * column.iter().map(pixel).sum::<f64>()
                };
                out.push(row.iter().map(value).sum::<f64>().round().clamp(0.0, 255.0) as u8);
            }
        }
    }
    out
}

#[test]
fn resizing_is_as_good_as_exact_arithmetic() {
    let cat = seen(CAT, [160, 240]);
    let png = encoded(&cat, ImageFormat::Png);
    for size in [[64, 64], [224, 224], [31, 200], [320, 17], [160, 120], [1, 1]] {
        let exact = plain_resize(&cat.to_rgb8(), [0.0, 0.0, 240.0, 160.0], size);
        let steps = format!("{{ resize = {{ size = [{}, {}] }} }}", size[0], size[1]);
        // At half the size or less, less of a JPEG is decoded.
        let is_reduced = size[0] <= 80 && size[1] <= 120;
        for (bytes, least) in [(&png[..], 50.0), (CAT, if is_reduced { 36.0 } else { 50.0 })] {
            let ours = picture(&steps, "", bytes).unwrap();
            let ratio = psnr(&ours, &exact);
            assert!(ratio > least, "{size:?}: {ratio} dB");
            // A JPEG's colours are clipped after resizing, those of the exact picture before.
            let worst = ours.iter().zip(&exact).map(|(a, b)| a.abs_diff(*b)).max();
            assert!(worst <= Some(1) || bytes == CAT, "{size:?}: off by {worst:?}");
        }
    }
}

#[test]
fn resize_then_center_crop_is_cutting_the_resized_picture() {
    // 240x160 -> 150x100 -> the middle 64x64: 43 and 18 pixels are cut off.
    let ours = picture("{ resize = { size = 100 } }, { center_crop = { size = 64 } }", "", CAT).unwrap();
    let resized = plain_resize(&seen(CAT, [160, 240]).to_rgb8(), [0.0, 0.0, 240.0, 160.0], [100, 150]);
    let cut: Vec<u8> = (18..82).flat_map(|row| resized[(row * 150 + 43) * 3..(row * 150 + 107) * 3].to_vec()).collect();
    let ratio = psnr(&ours, &cut);
    assert!(ratio > 50.0, "{ratio} dB");
}

#[test]
fn random_resized_crop_is_resizing_the_cut_out_rectangle() {
    let column = image_column("{ random_resized_crop = { size = 96 } }, { random_flip = {} }", "");
    let job = job(&[&column]);
    for id in 0..20 {
        let ColumnKind::Image(ImageColumn { ops, .. }) = &job.columns[0].kind else { panic!("{:?}", job.columns) };
        let plan = PicturePlan::new([240, 160], ops, &mut Draw::new(17, 1, id), &mut |_| None).unwrap().decode;
        let [(left, right), (top, bottom)] = [plan.x, plan.y].map(|span| span.unwrap().readable);
        let cut = seen(CAT, [160, 240]).crop_imm(left, top, right - left, bottom - top);
        let cut = if plan.mirrored { cut.fliph() } else { cut }.to_rgb8();
        let size = [right - left, bottom - top].map(f64::from);
        let expected = plain_resize(&cut, [0.0, 0.0, size[0], size[1]], [96, 96]);
        let ours = decode(&job, key(id), &[("jpg", CAT)]).unwrap().remove(0);
        let ratio = psnr(&ours, &expected);
        assert!(ratio > 50.0, "sample {id}, {plan:?}: {ratio} dB");
    }
}

#[test]
fn columns_with_the_same_steps_see_the_same_crop() {
    let steps = "ops = [{ random_resized_crop = { size = 32 } }, { random_flip = {} }]\ndecode = \"image\"";
    let job =
        job(&[&format!("name = \"a\"\nfrom = \"jpg\"\n{steps}"), &format!("name = \"b\"\nfrom = \"jpg\"\n{steps}")]);
    for id in 0..8 {
        let columns = decode(&job, key(id), &[("jpg", CAT)]).unwrap();
        assert_eq!(columns[0], columns[1]);
    }
}

#[test]
fn epoch_id_and_seed_decide_the_crop_and_nothing_else_does() {
    let column = image_column("{ random_resized_crop = { size = 32 } }, { random_flip = {} }", "");
    let job = job(&[&column]);
    let run = |job: &Job, key| decode(job, key, &[("jpg", CAT)]).unwrap();
    let base = run(&job, key(5));
    // Decodes a picture of another size in between, which leaves other bytes in the thread's scratch memory.
    run(&job, key(6));
    decode(&job, key(7), &[("jpg", ASTRONAUT)]).unwrap();
    assert_eq!(run(&job, key(5)), base);
    std::thread::scope(|scope| {
        assert_eq!(scope.spawn(|| run(&job, key(5))).join().unwrap(), base);
    });
    assert_ne!(run(&job, key(6)), base);
    assert_ne!(run(&job, SampleKey { epoch: 2, ..key(5) }), base);
    assert_ne!(run(&Job { seed: 18, ..job.clone() }, key(5)), base);
}
