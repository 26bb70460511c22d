//! Reads COCO's annotations of a picture from JSON: the box of each annotation, and the members that can be a label.
//! Outlines, which take ten times the bytes of all the rest, are skipped while they are read.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Number, Value};

use super::cause::{BadSampleProblem, reason, wrong_boxes};

/// Most bytes of a field with annotations: what is kept of them can take several times as many.
const MAX_BYTES: usize = 16 << 20;

/// One of COCO's annotations.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CocoAnnotation {
    /// Left, top, width and height, if it has these four numbers.
    pub(super) bbox: Option<[f64; 4]>,
    /// Its members that are numbers, texts or truth values, by key.
    members: Vec<(String, Value)>,
}

impl CocoAnnotation {
    fn is_of_crowd(&self) -> bool {
        match self.get("iscrowd") {
            Some(Value::Number(number)) => number.as_f64() != Some(0.0),
            Some(Value::Bool(is_crowd)) => *is_crowd,
            _ => false,
        }
    }

    /// Returns the number, text or truth value with this key.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.members.iter().rfind(|(name, _)| name == key).map(|(_, value)| value)
    }
}

/// Reads a list of annotations, or an object that has one as `annotations`. Those of crowds are left out, as torchvision's
/// references do: their boxes lie around groups of objects.
pub(super) fn read(file: &[u8], field: &str) -> Result<Vec<CocoAnnotation>, BadSampleProblem> {
    if file.len() > MAX_BYTES {
        return Err(wrong_boxes(
            field,
            format_args!("has {} bytes of annotations; {MAX_BYTES} are the most", file.len()),
        ));
    }
    let list: List = spdl_shard::json::read(file)
        .map_err(|error| BadSampleProblem::NotJson { field: field.to_owned(), reason: reason(error) })?;
    let mut annotations = list.0.ok_or_else(|| wrong_boxes(field, "has no list of annotations"))?;
    annotations.retain(|annotation| !annotation.is_of_crowd());
    Ok(annotations)
}

/// The annotations of a document, if it has a list of them.
struct List(Option<Vec<CocoAnnotation>>);

/// A JSON value, of which only the wanted parts are kept.
enum JsonPart<L, O> {
    Scalar(Value),
    List(L),
    Object(O),
}

/// A type that keeps the wanted part of a list.
trait KeptList: Sized {
    fn read<'de, A: SeqAccess<'de>>(list: A) -> Result<Self, A::Error>;
}

/// A type that keeps the wanted part of an object.
trait KeptObject: Sized {
    fn read<'de, A: MapAccess<'de>>(object: A) -> Result<Self, A::Error>;
}

/// Keeps nothing of a list or an object.
struct Nothing;

impl KeptList for Nothing {
    fn read<'de, A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self)
    }
}

impl KeptObject for Nothing {
    fn read<'de, A: MapAccess<'de>>(mut object: A) -> Result<Self, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self)
    }
}

/// Four numbers, if a list has them and no more.
struct Four(Option<[f64; 4]>);

impl KeptList for Four {
    fn read<'de, A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let (mut numbers, mut count) = ([None; 4], 0);
        while let Some(part) = list.next_element::<JsonPart<Nothing, Nothing>>()? {
            if let (Some(place), JsonPart::Scalar(value)) = (numbers.get_mut(count), part) {
                *place = value.as_f64();
            }
            count += 1;
        }
        let numbers = match numbers {
            [Some(x), Some(y), Some(width), Some(height)] if count == 4 => Some([x, y, width, height]),
            _ => None,
        };
        Ok(Self(numbers))
    }
}

impl KeptList for Vec<CocoAnnotation> {
    fn read<'de, A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut annotations = Self::new();
        while let Some(part) = list.next_element::<JsonPart<Nothing, CocoAnnotation>>()? {
            annotations.push(if let JsonPart::Object(annotation) = part {
                annotation
            } else {
                CocoAnnotation::default()
            });
        }
        Ok(annotations)
    }
}

impl KeptObject for CocoAnnotation {
    fn read<'de, A: MapAccess<'de>>(mut object: A) -> Result<Self, A::Error> {
        let mut annotation = Self::default();
        while let Some(key) = object.next_key::<String>()? {
            if key == "bbox" {
                let bbox: JsonPart<Four, Nothing> = object.next_value()?;
                annotation.bbox = if let JsonPart::List(Four(numbers)) = bbox { numbers } else { None };
            } else if let JsonPart::Scalar(value) = object.next_value::<JsonPart<Nothing, Nothing>>()? {
                annotation.members.push((key, value));
            }
        }
        Ok(annotation)
    }
}

impl KeptObject for List {
    fn read<'de, A: MapAccess<'de>>(mut object: A) -> Result<Self, A::Error> {
        let mut annotations = None;
        while let Some(key) = object.next_key::<String>()? {
            if key == "annotations" {
                let list: JsonPart<Vec<CocoAnnotation>, Nothing> = object.next_value()?;
                annotations = if let JsonPart::List(list) = list { Some(list) } else { None };
            } else {
                object.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Self(annotations))
    }
}

impl<'de> Deserialize<'de> for List {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match JsonPart::<Vec<CocoAnnotation>, Self>::deserialize(deserializer)? {
            JsonPart::List(annotations) => Self(Some(annotations)),
            JsonPart::Object(list) => list,
            JsonPart::Scalar(_) => Self(None),
        })
    }
}

impl<'de, L: KeptList, O: KeptObject> Deserialize<'de> for JsonPart<L, O> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PartVisitor(std::marker::PhantomData))
    }
}

struct PartVisitor<L, O>(std::marker::PhantomData<(L, O)>);

impl<'de, L: KeptList, O: KeptObject> Visitor<'de> for PartVisitor<L, O> {
    type Value = JsonPart<L, O>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<JsonPart<L, O>, E> {
        Ok(JsonPart::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<JsonPart<L, O>, E> {
        Ok(JsonPart::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<JsonPart<L, O>, E> {
        Ok(JsonPart::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<JsonPart<L, O>, E> {
        Ok(JsonPart::Scalar(Number::from_f64(value).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<JsonPart<L, O>, E> {
        Ok(JsonPart::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<JsonPart<L, O>, E> {
        Ok(JsonPart::Scalar(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<JsonPart<L, O>, A::Error> {
        L::read(list).map(JsonPart::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<JsonPart<L, O>, A::Error> {
        O::read(object).map(JsonPart::Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_annotation_its_box_and_what_can_be_a_label_are_kept() {
        let text = r#"{"info": [1], "annotations": [
            {"bbox": [1, 2.5, -3e1, 4], "category_id": 7, "segmentation": [[1, 2, 3]], "iscrowd": false, "area": 9.5},
            {"bbox": [1, 2, 3, 4, 5], "name": "one", "segmentation": {"counts": "abc", "size": [4, 5]}, "name": "two"},
            {"bbox": [1, 2, 3, "4"], "caption": null}, {"bbox": 5}, 6, []], "more": {"annotations": 1}}"#;
        let annotations = read(text.as_bytes(), "json").unwrap();
        let boxes: Vec<_> = annotations.iter().map(|annotation| annotation.bbox).collect();
        assert_eq!(boxes, [Some([1.0, 2.5, -30.0, 4.0]), None, None, None, None, None]);
        let [first, second, third, ..] = &annotations[..] else { panic!("{annotations:?}") };
        assert_eq!([first.get("category_id"), first.get("area")], [Some(&7.into()), Some(&9.5.into())]);
        assert_eq!([first.get("iscrowd"), first.get("segmentation")], [Some(&false.into()), None]);
        assert_eq!([second.get("name"), third.get("caption")], [Some(&"two".into()), Some(&Value::Null)]);
    }

    #[test]
    fn annotations_of_crowds_are_left_out() {
        let text = r#"[{"id": 1, "iscrowd": 1}, {"id": 2, "iscrowd": 0}, {"id": 3, "iscrowd": true}, {"id": 4}, {"id": 5, "iscrowd": "x"}]"#;
        let annotations = read(text.as_bytes(), "json").unwrap();
        let ids: Vec<_> = annotations.iter().filter_map(|annotation| annotation.get("id")?.as_u64()).collect();
        assert_eq!(ids, [2, 4, 5]);
    }

    #[test]
    fn documents_without_a_list_and_too_long_ones_are_refused() {
        for text in ["{}", "7", "null", "{\"annotations\": {}}", "{\"annotations\": [], \"annotations\": 3}"] {
            let problem = read(text.as_bytes(), "json").unwrap_err().to_string();
            assert_eq!(problem, "field `json` has no list of annotations", "{text}");
        }
        let long = format!("[{}]", " ".repeat(MAX_BYTES));
        let problem = read(long.as_bytes(), "json").unwrap_err().to_string();
        assert_eq!(problem, "field `json` has 16777218 bytes of annotations; 16777216 are the most");
        for text in ["", "[", "[{]", "[] []", &"[".repeat(100_000)] {
            let problem = read(text.as_bytes(), "json").unwrap_err();
            assert!(matches!(problem, BadSampleProblem::NotJson { .. }), "{text}: {problem}");
        }
    }
}
