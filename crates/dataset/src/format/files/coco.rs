//! COCO's annotations as a table of files: a JSON document with `images`, `annotations` and `categories`.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};
use spdl_shard::json;

use crate::DatasetError;

/// The key of an annotation that is left out: the outline of an object takes ten times the bytes of all else.
const OUTLINE: &str = "segmentation";

#[derive(Deserialize)]
struct Document<'t> {
    images: Vec<CocoImage>,
    #[serde(borrow)]
    annotations: Vec<&'t RawValue>,
    #[serde(default)]
    categories: Vec<Category>,
}

#[derive(Deserialize)]
struct CocoImage {
    id: Value,
    file_name: String,
    width: Option<u64>,
    height: Option<u64>,
}

#[derive(Deserialize)]
struct Category {
    id: Value,
    name: String,
}

/// The keys by which COCO's documents are recognised.
#[derive(Deserialize)]
struct Keys {
    #[serde(rename = "images")]
    _images: serde::de::IgnoredAny,
    #[serde(rename = "annotations")]
    _annotations: serde::de::IgnoredAny,
}

/// Returns whether `text` is a document like COCO's.
pub(super) fn is_coco(text: &str) -> bool {
    json::read::<Keys>(text.as_bytes()).is_ok()
}

/// Returns the document as JSON lines: one for each picture, with its number, its size and its annotations as the list `objects`, in
/// their order. Each has the name of its category as `category`, and no outline.
pub(super) fn to_lines(path: &Path, text: &str) -> Result<String, DatasetError> {
    lines_of(path, text).or_else(|error| {
        match json::marked(text.as_bytes()).and_then(|marked| String::from_utf8(marked).ok()) {
            Some(marked) => Ok(json::unmarked(&lines_of(path, &marked)?)),
            None => Err(error),
        }
    })
}

fn lines_of(path: &Path, text: &str) -> Result<String, DatasetError> {
    let wrong = |problem: String| DatasetError::Source { path: path.display().to_string(), problem };
    let document: Document<'_> =
        serde_json::from_str(text).map_err(|error| wrong(format!("is not a document like COCO's: {error}")))?;
    let mut categories: HashMap<String, &str> = HashMap::new();
    for category in &document.categories {
        if categories.insert(category.id.to_string(), &category.name).is_some() {
            return Err(wrong(format!("has the category {} twice", category.id)));
        }
    }
    let mut numbers: HashMap<String, usize> = HashMap::new();
    for (number, picture) in document.images.iter().enumerate() {
        if numbers.insert(picture.id.to_string(), number).is_some() {
            return Err(wrong(format!("has the image {} twice", picture.id)));
        }
    }
    let mut by_picture = vec![Vec::new(); document.images.len()];
    for (number, annotation) in document.annotations.iter().enumerate() {
        #[derive(Deserialize)]
        struct OfPicture {
            image_id: Value,
        }
        let of: OfPicture = serde_json::from_str(annotation.get())
            .map_err(|error| wrong(format!("has annotation {number} without an `image_id`: {error}")))?;
        let picture = numbers.get(&of.image_id.to_string()).ok_or_else(|| {
            wrong(format!("has annotation {number} of the image {}, which is not among its images", of.image_id))
        })?;
        by_picture[*picture].push(*annotation);
    }
    let mut lines = String::new();
    for (picture, annotations) in document.images.iter().zip(by_picture) {
        let mut seen = HashSet::new();
        if let Some(twice) = annotations.iter().find(|annotation| !seen.insert(annotation.get())) {
            let id = serde_json::from_str::<Value>(twice.get()).ok().and_then(|object| object.get("id").cloned());
            let called = id.map(|id| format!(" {id}")).unwrap_or_default();
            return Err(wrong(format!("has the annotation{called} of the image {} twice", picture.id)));
        }
        let objects = annotations.into_iter().map(|annotation| object(annotation, &categories));
        let objects = objects.collect::<Result<Vec<_>, _>>().map_err(|error| wrong(error.to_string()))?;
        let mut line = Map::new();
        line.insert("file".to_owned(), picture.file_name.clone().into());
        line.insert("image_id".to_owned(), picture.id.clone());
        for (name, size) in [("width", picture.width), ("height", picture.height)] {
            line.extend(size.map(|size| (name.to_owned(), size.into())));
        }
        line.insert("objects".to_owned(), Value::Array(objects));
        lines.push_str(&Value::Object(line).to_string());
        lines.push('\n');
    }
    Ok(lines)
}

fn object(annotation: &RawValue, categories: &HashMap<String, &str>) -> serde_json::Result<Value> {
    let mut object: Map<String, Value> = serde_json::from_str(annotation.get())?;
    object.remove(OUTLINE);
    let category = object.get("category_id").and_then(|id| categories.get(&id.to_string()));
    if let Some(name) = category {
        object.insert("category".to_owned(), (*name).into());
    }
    Ok(Value::Object(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = r#"{"info": {}, "images": [
        {"id": 7, "file_name": "a.jpg", "width": 640, "height": 480}, {"id": 9, "file_name": "sub/b.jpg"}],
        "annotations": [
            {"id": 1, "image_id": 9, "category_id": 3, "bbox": [1.5, 2, 3, 4], "segmentation": [[1, 2, 3, 4]]},
            {"id": 2, "image_id": 9, "category_id": 8, "bbox": [0, 0, 1, 1], "iscrowd": 1}],
        "categories": [{"id": 3, "name": "cat", "supercategory": "animal"}]}"#;

    #[test]
    fn scores_that_are_no_numbers_are_kept() {
        let document = DOCUMENT.replace("\"iscrowd\": 1", "\"score\": NaN");
        assert!(is_coco(&document));
        let lines = to_lines(Path::new("coco.json"), &document).unwrap();
        assert!(lines.lines().nth(1).is_some_and(|line| line.contains("\"score\":NaN")), "{lines}");
    }

    #[test]
    fn each_picture_has_its_annotations_in_order_without_outlines() {
        assert!(is_coco(DOCUMENT));
        let lines = to_lines(Path::new("instances.json"), DOCUMENT).unwrap();
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(
            lines,
            [
                serde_json::json!({"file": "a.jpg", "image_id": 7, "width": 640, "height": 480, "objects": []}),
                serde_json::json!({"file": "sub/b.jpg", "image_id": 9, "objects": [
                    {"id": 1, "image_id": 9, "category_id": 3, "bbox": [1.5, 2, 3, 4], "category": "cat"},
                    {"id": 2, "image_id": 9, "category_id": 8, "bbox": [0, 0, 1, 1], "iscrowd": 1}]}),
            ]
        );
    }

    #[test]
    fn what_is_listed_twice_is_an_error_that_names_it() {
        let image = r#"{"id": 7, "file_name": "a.jpg", "width": 640, "height": 480}"#;
        let box_of_9 = r#"{"id": 2, "image_id": 9, "category_id": 8, "bbox": [0, 0, 1, 1], "iscrowd": 1}"#;
        let category = r#"{"id": 3, "name": "cat", "supercategory": "animal"}"#;
        for (what, expected) in [
            (image, "has the image 7 twice"),
            (box_of_9, "has the annotation 2 of the image 9 twice"),
            (category, "has the category 3 twice"),
        ] {
            let twice = DOCUMENT.replace(what, &format!("{what}, {what}"));
            let error = to_lines(Path::new("coco.json"), &twice).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn json_lines_and_other_documents_are_none_of_coco_s() {
        for text in ["{\"file\": \"a\"}\n{\"file\": \"b\"}\n", "[]", "{\"images\": []}", "{\"images\": ["] {
            assert!(!is_coco(text), "{text}");
        }
    }

    #[test]
    fn an_annotation_of_no_image_is_named() {
        let text = r#"{"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"image_id": 2}]}"#;
        let error = to_lines(Path::new("instances.json"), text).unwrap_err().to_string();
        assert!(error.contains("instances.json") && error.contains("annotation 0 of the image 2"), "{error}");
        let text = r#"{"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"bbox": []}]}"#;
        let error = to_lines(Path::new("instances.json"), text).unwrap_err().to_string();
        assert!(error.contains("annotation 0 without an `image_id`"), "{error}");
    }
}
