//! The names of classes in the metadata of a file, as Hugging Face `datasets` writes its features there.

use serde_json::Value;

/// The key of the features in the metadata of a file.
pub(super) const FEATURES_KEY: &str = "huggingface";
/// Maximum length of the features' text, in bytes; names in a longer one are not read.
const MAX_FEATURES_BYTES: usize = 16 << 20;
/// The key of a feature that has its type.
const TYPE: &str = "_type";

/// Returns the names of classes, in the order of their numbers, by the column that has these numbers. A column in a struct has its
/// path, such as `objects.category`.
pub(super) fn class_names(features: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    if features.len() <= MAX_FEATURES_BYTES
        && let Ok(document) = serde_json::from_str::<Value>(features)
    {
        collect(&document["info"]["features"], &mut Vec::new(), &mut found);
    }
    found
}

/// Adds the names in a feature, or in the features of a struct.
fn collect<'v>(feature: &'v Value, path: &mut Vec<&'v str>, found: &mut Vec<(String, Vec<String>)>) {
    match (feature, feature.get(TYPE).and_then(Value::as_str)) {
        (_, Some("ClassLabel")) => {
            let names = feature["names"].as_array().into_iter().flatten();
            let names: Option<Vec<String>> = names.map(|name| name.as_str().map(str::to_owned)).collect();
            if let Some(names) = names.filter(|names| !names.is_empty()) {
                found.push((path.join("."), names));
            }
        }
        // A list of features is a feature of the same column.
        (_, Some(_)) => {
            if let Some(inner) = feature.get("feature") {
                collect(inner, path, found);
            }
        }
        (Value::Object(members), None) => {
            for (name, member) in members {
                path.push(name);
                collect(member, path, found);
                path.pop();
            }
        }
        (Value::Array(items), None) => items.iter().for_each(|item| collect(item, path, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_at_the_top_in_lists_and_in_structs() {
        let features = r#"{"info": {"features": {
            "image": {"_type": "Image"},
            "label": {"names": ["cat", "dog"], "_type": "ClassLabel"},
            "tags": {"feature": {"names": ["red"], "_type": "ClassLabel"}, "_type": "Sequence"},
            "objects": {"bbox": {"feature": {"dtype": "float32", "_type": "Value"}, "_type": "Sequence"},
                        "category": [{"names": ["car"], "_type": "ClassLabel"}]},
            "unnamed": {"num_classes": 3, "names": [], "_type": "ClassLabel"}}}}"#;
        let expected = [("label", vec!["cat", "dog"]), ("objects.category", vec!["car"]), ("tags", vec!["red"])];
        let found = class_names(features);
        let found: Vec<_> =
            found.iter().map(|(column, names)| (column.as_str(), names.iter().map(String::as_str).collect())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_text_that_has_no_features_has_no_names() {
        for features in
            ["", "{", "[]", "{\"info\": 7}", "{\"info\": {\"features\": [{\"_type\": 3}]}}", &"[".repeat(9999)]
        {
            assert_eq!(class_names(features), [], "{features}");
        }
        let numbers = "{\"info\": {\"features\": {\"a\": {\"_type\": \"ClassLabel\", \"names\": [1, 2]}}}}";
        assert_eq!(class_names(numbers), []);
    }
}
