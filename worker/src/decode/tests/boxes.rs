//! Bounding boxes: they move with the picture, are clipped and filtered, and keep their labels.

use super::*;

const COCO: &str = r#"{"annotations": [
    {"bbox": [10.5, 20.25, 79.5, 50.25], "category_id": 18, "iscrowd": 0, "cut": 0, "name": "cat"},
    {"bbox": [100, 5, 130, 145], "category_id": 1, "iscrowd": 0, "cut": 1, "name": "dog"},
    {"bbox": [1, 2, 200, 100], "category_id": 1, "iscrowd": 1, "cut": 1, "name": "dog"},
    {"bbox": [0, 0, 240, 160], "category_id": 44, "iscrowd": 0, "cut": 0, "name": "cat"},
    {"bbox": [200, 120, 60, 35], "category_id": 7, "iscrowd": 0, "cut": 0, "name": "dog"}]}"#;

fn boxes_column(stored_as: &str, more: &str) -> String {
    format!(
        "name = \"boxes\"\nfrom = \"ann\"\ndecode = \"boxes\"\nfollows = \"image\"\nmax_rows = 9\nstored_as = \"{stored_as}\"\n{more}"
    )
}

fn labels_column(from: &str, more: &str) -> String {
    format!("name = \"labels\"\nfrom = \"{from}\"\ndecode = \"box_labels\"\nfollows = \"boxes\"\n{more}")
}

/// Decodes the boxes of a record with the picture of a cat, 240x160, and their labels.
fn decoded(
    ops: &str,
    columns: &[String],
    id: u64,
    fields: &[(&str, FieldValue)],
) -> Result<(Vec<[f32; 4]>, Vec<i64>), String> {
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let image = image_column(ops, "");
    let job = job(&[&columns[..], &[&image]].concat());
    decoded_by(&Decoder::new(&job, CLASSES).unwrap(), &job, id, fields)
}

/// Decodes a record with a decoder for columns of which the last one is the picture.
fn decoded_by(
    decoder: &Decoder,
    job: &Job,
    id: u64,
    fields: &[(&str, FieldValue)],
) -> Result<(Vec<[f32; 4]>, Vec<i64>), String> {
    let size = job.columns.last().unwrap().max_bytes() as usize;
    let (mut values, mut image) = (vec![Bytes::new(); job.columns.len() - 1], vec![0; size]);
    let field = |name: &str| match name {
        "jpg" => Some(Bytes::from_static(CAT).into()),
        _ => fields.iter().find(|(field, _)| *field == name).map(|(_, content)| content.clone()),
    };
    let mut targets: Vec<FieldTarget<'_>> = values.iter_mut().map(FieldTarget::Ragged).collect();
    targets.push(FieldTarget::Fixed(&mut image));
    decoder.decode_sample(key(id), &field, &mut targets).map_err(|error| error.to_string())?;
    let number = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes);
    let boxes = values[0].as_chunks::<16>().0.iter().map(|edges| {
        let numbers = edges.as_chunks::<4>().0;
        [number(&numbers[0]), number(&numbers[1]), number(&numbers[2]), number(&numbers[3])]
    });
    let labels =
        values.get(1).map(|labels| labels.as_chunks().0.iter().map(|label| i64::from_le_bytes(*label)).collect());
    Ok((boxes.collect(), labels.unwrap_or_default()))
}

fn of_coco(ops: &str, more: &str, id: u64) -> (Vec<[f32; 4]>, Vec<i64>) {
    let columns = [boxes_column("coco", more), labels_column("ann", "")];
    decoded(ops, &columns, id, &[("ann", Bytes::from_static(COCO.as_bytes()).into())]).unwrap()
}

fn assert_near(ours: &[[f32; 4]], expected: &[[f64; 4]], what: &str) {
    assert_eq!(ours.len(), expected.len(), "{what}: {ours:?}");
    for (ours, expected) in ours.iter().zip(expected) {
        let near = ours.iter().zip(expected).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-3);
        assert!(near, "{what}: {ours:?}, not {expected:?}");
    }
}

#[test]
fn boxes_are_clipped_and_filtered_and_their_labels_stay_with_them() {
    let (boxes, labels) = of_coco("{ resize = [160, 240] }", "", 0);
    assert_near(
        &boxes,
        &[
            [10.5, 20.25, 90.0, 70.5],
            [100.0, 5.0, 230.0, 150.0],
            [0.0, 0.0, 240.0, 160.0],
            [200.0, 120.0, 240.0, 155.0],
        ],
        "clipped",
    );
    assert_eq!(labels, [18, 1, 44, 7]);
    // The middle of 120x100 pixels leaves the shares 0.25, 0.43, 0.31 and 0 of the areas of the boxes.
    let (boxes, labels) = of_coco("{ center_crop = [100, 120] }", "", 0);
    assert_near(&boxes, &[[0.0, 0.0, 30.0, 40.5], [40.0, 0.0, 120.0, 100.0], [0.0, 0.0, 120.0, 100.0]], "cropped");
    assert_eq!(labels, [18, 1, 44]);
    for (more, expected) in [
        ("min_visible = 0.32", vec![1]),
        ("min_visible = 0.43", vec![]),
        ("min_visible = 0", vec![18, 1, 44]),
        ("min_size = 31", vec![1, 44]),
        ("min_size = 100.5", vec![]),
    ] {
        assert_eq!(of_coco("{ center_crop = [100, 120] }", more, 0).1, expected, "{more}");
    }
}

#[test]
fn boxes_come_in_the_format_that_the_column_names() {
    let ops = "{ resize = [80, 120] }";
    assert_near(&of_coco(ops, "format = \"xywh\"", 0).0[..1], &[[5.25, 10.125, 39.75, 25.125]], "xywh");
    assert_near(&of_coco(ops, "format = \"cxcywh\"", 0).0[..1], &[[25.125, 22.6875, 39.75, 25.125]], "cxcywh");
    let shares = of_coco(ops, "normalised = true", 0).0;
    assert_near(&shares[1..2], &[[100.0 / 240.0, 5.0 / 160.0, 230.0 / 240.0, 150.0 / 160.0]], "shares");
}

#[test]
fn a_box_moves_as_the_pixels_in_it_do() {
    // A mask that is 1 in the box shows where its pixels went.
    let mask = image::GrayImage::from_fn(240, 160, |x, y| {
        image::Luma([u8::from((100..180).contains(&x) && (40..100).contains(&y))])
    });
    let mask = encoded(&mask.into(), image::ImageFormat::Png);
    let fields: [(&str, &[u8]); 2] = [("jpg", CAT), ("png", &mask)];
    let ann = br#"[{"bbox": [100, 40, 80, 60], "category_id": 1}]"#;
    let mut kept = 0;
    for ops in [
        "{ random_resized_crop = { size = [90, 70], scale = [0.3, 1.0] } }, { random_flip = 0.5 }, { random_vertical_flip = 0.5 }",
        "{ random_crop = { size = [120, 130], padding = [30, 40] } }, { random_flip = 0.5 }",
        "{ letterbox = [100, 100] }, { random_flip = 0.5 }",
        "{ random_rotation = { degrees = 40, expand = true } }, { random_vertical_flip = 0.5 }, { resize = [100, 110] }",
        "{ random_affine = { degrees = 30, translate = [0.2, 0.2], scale = [0.7, 1.3], shear = 15 } }, { random_crop = [140, 200] }",
        "{ random_perspective = { p = 1.0, interpolation = \"nearest\" } }, { pad = [3, 5, 7, 9] }, { center_crop = [170, 230] }",
    ] {
        let mask_column = "name = \"mask\"\nfrom = \"png\"\ndecode = \"mask\"\nfollows = \"image\"\nignore_index = 0";
        let image = format!("name = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\nops = [{ops}]");
        let job = job(&[mask_column, &image]);
        let [_, width] = job.columns[0].sample_shape().unwrap()[..] else { panic!("a mask") };
        for id in 0..20 {
            let classes = decode(&job, key(id), &fields).unwrap().remove(0);
            let set = || {
                classes
                    .iter()
                    .enumerate()
                    .filter(|(_, class)| **class == 1)
                    .map(|(at, _)| [at % width as usize, at / width as usize])
            };
            let columns = [boxes_column("coco", "min_visible = 0.0")];
            let (boxes, _) = decoded(ops, &columns, id, &[("ann", Bytes::from_static(ann).into())]).unwrap();
            let Some(edges) = boxes.first() else {
                assert!(set().count() < 4 * width as usize, "{ops}, sample {id}: only a sliver may be left");
                continue;
            };
            kept += 1;
            for [x, y] in set() {
                let inside = |at: usize, low: f32, high: f32| (low - 1.0..high + 1.0).contains(&(at as f32 + 0.5));
                assert!(
                    inside(x, edges[0], edges[2]) && inside(y, edges[1], edges[3]),
                    "{ops}, sample {id}: {x}, {y} in {edges:?}"
                );
            }
            // Each clipped or straight side has pixels beside it.
            if !ops.contains("rotation") && !ops.contains("affine") && !ops.contains("perspective") {
                for (side, axis) in [(0, 0), (1, 1), (2, 0), (3, 1)] {
                    let nearest =
                        set().map(|place| (place[axis] as f32 + 0.5 - edges[side]).abs()).fold(f32::MAX, f32::min);
                    assert!(nearest <= 1.51, "{ops}, sample {id}, side {side}: {nearest} from {edges:?}");
                }
            }
        }
    }
    assert!(kept > 90, "{kept} of 120");
}

fn numbers(values: &[f32]) -> FieldValue {
    let elements: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    spdl_shard::format::Array { dtype: DType::F32, shape: vec![values.len() as u64], elements: elements.into() }.into()
}

#[test]
fn boxes_are_read_from_annotations_and_arrays() {
    let ops = "{ resize = [160, 240] }";
    let expected = [[10.0, 20.0, 40.0, 60.0], [30.0, 40.0, 50.0, 160.0]];
    let xml = "<annotation><object><name>cat</name><bndbox><xmin>10</xmin><ymin>20</ymin><xmax>40</xmax><ymax>60</ymax></bndbox></object>\
               <object><name>dog</name><bndbox><xmin>30</xmin><ymin>40</ymin><xmax>50</xmax><ymax>160</ymax></bndbox></object></annotation>";
    let columns = [boxes_column("voc", ""), labels_column("ann", "")];
    let (boxes, labels) = decoded(ops, &columns, 0, &[("ann", Bytes::from_static(xml.as_bytes()).into())]).unwrap();
    assert_near(&boxes, &expected, "voc");
    assert_eq!(labels, [1, 0], "the dataset's classes are dog, cat");
    let classes = spdl_shard::format::Array {
        dtype: DType::I32,
        shape: vec![2],
        elements: Bytes::from_static(&[9, 0, 0, 0, 3, 1, 0, 0]),
    };
    for (stored_as, values) in [
        ("xyxy", [10.0, 20.0, 40.0, 60.0, 30.0, 40.0, 50.0, 160.0]),
        ("xywh", [10.0, 20.0, 30.0, 40.0, 30.0, 40.0, 20.0, 120.0]),
        ("cxcywh", [25.0, 40.0, 30.0, 40.0, 40.0, 100.0, 20.0, 120.0]),
    ] {
        let columns = [boxes_column(stored_as, ""), labels_column("classes", "")];
        let fields = [("ann", numbers(&values)), ("classes", classes.clone().into())];
        let (boxes, labels) = decoded(ops, &columns, 0, &fields).unwrap();
        assert_near(&boxes, &expected, stored_as);
        assert_eq!(labels, [9, 259]);
    }
    let named = [boxes_column("coco", ""), labels_column("ann", "key = \"name\"")];
    let coco: FieldValue = Bytes::from_static(COCO.as_bytes()).into();
    assert_eq!(decoded(ops, &named, 0, &[("ann", coco.clone())]).unwrap().1, [1, 0, 1, 0]);
    let cut = [boxes_column("coco", ""), labels_column("ann", "key = \"cut\"")];
    assert_eq!(decoded(ops, &cut, 0, &[("ann", coco)]).unwrap().1, [0, 1, 0, 0]);
    let none: FieldValue = Bytes::from_static(b"[]").into();
    assert_eq!(decoded(ops, &named, 0, &[("ann", none)]).unwrap(), (vec![], vec![]));
}

#[test]
fn boxes_and_labels_that_do_not_fit_are_bad_samples() {
    let ops = "{ resize = [160, 240] }";
    let coco = [boxes_column("coco", ""), labels_column("ann", "")];
    let error = |columns: &[String], ann: &'static str| {
        decoded(ops, columns, 0, &[("ann", Bytes::from_static(ann.as_bytes()).into())]).unwrap_err()
    };
    for (ann, expected) in [
        ("[", "column `boxes`: field `ann` is not JSON"),
        ("{\"boxes\": []}", "column `boxes`: field `ann` has no list of annotations"),
        ("[{\"bbox\": [1, 2, 3]}]", "column `boxes`: field `ann` annotation 0 has no `bbox` of 4 numbers"),
        ("[{\"bbox\": [1, 2, -3, 4]}]", "column `boxes`: field `ann` has box 0 with x 1..-2, y 2..6"),
        (
            "[{\"bbox\": [1, 2, 3, 4]}]",
            "column `labels`: field `ann` annotation 0 has no number or name as `category_id`",
        ),
        (
            "[{\"bbox\": [1, 2, 3, 4], \"category_id\": \"bee\"}]",
            "column `labels`: field `ann` is \"bee\", which is none of the column's names",
        ),
        (
            "[{\"bbox\": [1, 2, 3, 4], \"category_id\": 1.5}]",
            "column `labels`: field `ann` is \"1.5\", not a whole number",
        ),
    ] {
        let found = error(&coco, ann);
        assert!(found.starts_with(expected), "{ann}: {found}");
    }
    let many = format!("[{}]", ["{\"bbox\": [1, 2, 3, 4], \"category_id\": 1}"; 10].join(","));
    let found = decoded(ops, &coco, 0, &[("ann", Bytes::from(many).into())]).unwrap_err();
    assert_eq!(found, "column `boxes`: field `ann` has 10 boxes to keep; `max_rows` is 9");
    let arrays = [boxes_column("xyxy", ""), labels_column("classes", "")];
    for (boxes, labels, expected) in [
        (&[1.0, 2.0, 3.0][..], &[][..], "column `boxes`: field `ann` holds an array of [3], and a box has 4 numbers"),
        (&[1.0, 2.0, 3.0, f32::NAN], &[1.0], "column `boxes`: field `ann` has box 0 with x 1..3, y 2..NaN"),
        (&[1.0, 2.0, 3.0, 4.0], &[], "column `labels`: field `classes` has 0 labels, and there are 1 boxes"),
        (&[1.0, 2.0, 3.0, 4.0], &[1.0], "column `labels`: field `classes` holds f32, which are no whole numbers"),
    ] {
        let fields = [("ann", numbers(boxes)), ("classes", numbers(labels))];
        assert_eq!(decoded(ops, &arrays, 0, &fields).unwrap_err(), expected);
    }
    let unnamed = job(&[&coco[0], &coco[1], &image_column(ops, "")]);
    let ann = r#"[{"bbox": [1, 2, 3, 4], "category_id": "cat"}]"#;
    let found = decoded_by(&Decoder::new(&unnamed, []).unwrap(), &unnamed, 0, &[("ann", Bytes::from(ann).into())]);
    let expected =
        "column `labels`: field `ann` has the name \"cat\"; the column has no `names`, and the dataset no classes";
    assert_eq!(found.unwrap_err(), expected);
}

#[test]
fn boxes_move_as_torchvision_moves_them() {
    // What torchvision 0.29's functions make of these boxes as `BoundingBoxes`, with the same parameters.
    let cases: [(&str, &[[f64; 4]]); 6] = [
        (
            "{ resize = [64, 100] }",
            &[
                [4.375, 8.1, 37.5, 28.2],
                [41.6667, 2.0, 95.8333, 60.0],
                [0.0, 0.0, 100.0, 64.0],
                [83.3333, 48.0, 100.0, 62.0],
            ],
        ),
        (
            "{ random_flip = 1.0 }, { random_vertical_flip = 1.0 }, { resize = [160, 240] }",
            &[
                [150.0, 89.5, 229.5, 139.75],
                [10.0, 10.0, 140.0, 155.0],
                [0.0, 0.0, 240.0, 160.0],
                [0.0, 5.0, 40.0, 40.0],
            ],
        ),
        (
            "{ resize = [160, 240] }, { pad = [3, 7, 11, 0] }",
            &[
                [13.5, 27.25, 93.0, 77.5],
                [103.0, 12.0, 233.0, 157.0],
                [3.0, 7.0, 243.0, 167.0],
                [203.0, 127.0, 243.0, 162.0],
            ],
        ),
        (
            "{ random_rotation = { degrees = [17.3, 17.3] } }, { resize = [160, 240] }",
            &[
                [0.0, 31.8743, 88.5321, 103.4923],
                [78.6017, 0.0, 240.0, 152.7808],
                [0.0, 0.0, 240.0, 160.0],
                [208.2759, 82.5054, 240.0, 127.8171],
            ],
        ),
        (
            "{ random_affine = { degrees = [-12.9, -12.9], scale = [1.37, 1.37], shear = [21.3, 21.3] } }, { resize = [160, 240] }",
            &[
                [0.0, 2.2591, 92.772, 99.6715],
                [78.2551, 0.0, 240.0, 160.0],
                [0.0, 0.0, 240.0, 160.0],
                [210.7233, 101.4845, 240.0, 160.0],
            ],
        ),
        (
            "{ resize = [80, 120] }, { center_crop = [50, 61] }, { random_flip = 1.0 }",
            &[[46.0, 0.0, 61.0, 20.25], [0.0, 0.0, 41.0, 50.0], [0.0, 0.0, 61.0, 50.0]],
        ),
    ];
    for (ops, expected) in cases {
        assert_near(&of_coco(ops, "min_visible = 0.0", 0).0, expected, ops);
    }
}
