//! Pascal VOC annotations: the objects in a picture, each with its class and bounding box.

/// Size of the largest annotation that is parsed, in bytes. Annotations in practice have a few kilobytes.
pub const MAX_ANNOTATION_BYTES: usize = 1 << 20;
const MAX_NODES: u32 = 1 << 17;
/// Annotations have no attributes as a rule. The XML parser compares each attribute of an element with all attributes
/// before it, so that many of them would cost minutes.
const MAX_ATTRIBUTES: usize = 1024;

/// A picture's annotation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Annotation {
    /// The objects, in the order of the file: object i is sample i of its record.
    pub objects: Vec<VocObject>,
}

/// One object in a picture. Its box is in pixels, as the file states it: nothing is clipped to the picture.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct VocObject {
    /// Name of its class.
    pub class: String,
    pub xmin: f32,
    pub ymin: f32,
    pub xmax: f32,
    pub ymax: f32,
}

/// Why an annotation cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum VocError {
    /// It is longer than [`MAX_ANNOTATION_BYTES`].
    #[error("annotation has {0} bytes, more than {MAX_ANNOTATION_BYTES}")]
    TooLong(usize),
    /// It has more attributes than any annotation needs.
    #[error("annotation has {0} `=`, more than {MAX_ATTRIBUTES}: this is not Pascal VOC")]
    TooManyAttributes(usize),
    /// It is not UTF-8.
    #[error("annotation is not UTF-8")]
    NotUtf8,
    /// It is not XML.
    #[error("annotation is not valid XML: {0}")]
    Syntax(#[from] roxmltree::Error),
    /// It is XML, but not an annotation.
    #[error("annotation starts with `<{0}>`, not with `<annotation>`")]
    OtherRoot(String),
    /// An object lacks a part or has an invalid one.
    #[error("object {object} (`{class}`): {problem}")]
    Object { object: usize, class: String, problem: String },
}

impl Annotation {
    /// Parses an annotation.
    ///
    /// # Errors
    /// If the bytes are not XML or not an annotation, or if an object has no class, no box, or a box that is not finite
    /// or ends before it starts.
    pub fn parse(xml: &[u8]) -> Result<Self, VocError> {
        if xml.len() > MAX_ANNOTATION_BYTES {
            return Err(VocError::TooLong(xml.len()));
        }
        let attributes = xml.iter().filter(|byte| **byte == b'=').count();
        if attributes > MAX_ATTRIBUTES {
            return Err(VocError::TooManyAttributes(attributes));
        }
        let xml = std::str::from_utf8(xml).map_err(|_| VocError::NotUtf8)?;
        let options = roxmltree::ParsingOptions { nodes_limit: MAX_NODES, ..Default::default() };
        let document = roxmltree::Document::parse_with_options(xml, options)?;
        let root = document.root_element();
        if !root.has_tag_name("annotation") {
            return Err(VocError::OtherRoot(root.tag_name().name().to_owned()));
        }
        let objects = root.children().filter(|node| node.has_tag_name("object"));
        let objects = objects.enumerate().map(|(number, node)| VocObject::parse(number, node));
        Ok(Self { objects: objects.collect::<Result<_, _>>()? })
    }
}

impl VocObject {
    fn parse(number: usize, node: roxmltree::Node<'_, '_>) -> Result<Self, VocError> {
        let class = child_text(node, "name").unwrap_or_default().to_owned();
        let fail = |problem: String| VocError::Object { object: number, class: class.clone(), problem };
        if class.is_empty() {
            return Err(fail("has no `name`".to_owned()));
        }
        let bounds = node.children().find(|node| node.has_tag_name("bndbox"));
        let bounds = bounds.ok_or_else(|| fail("has no `bndbox`".to_owned()))?;
        let side = |tag: &str| {
            let text = child_text(bounds, tag).ok_or_else(|| fail(format!("its box has no `{tag}`")))?;
            match text.parse::<f32>() {
                Ok(value) if value.is_finite() => Ok(value),
                _ => Err(fail(format!("`{tag}` is `{text}`, not a finite number"))),
            }
        };
        let (xmin, ymin, xmax, ymax) = (side("xmin")?, side("ymin")?, side("xmax")?, side("ymax")?);
        if xmax < xmin || ymax < ymin {
            return Err(fail(format!("its box ends before it starts: x {xmin}..{xmax}, y {ymin}..{ymax}")));
        }
        Ok(Self { class, xmin, ymin, xmax, ymax })
    }
}

fn child_text<'a>(node: roxmltree::Node<'a, '_>, tag: &str) -> Option<&'a str> {
    node.children().find(|child| child.has_tag_name(tag))?.text().map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "<annotation><folder>x</folder><size><width>500</width></size>
        <object><name> dog </name><pose>Left</pose>
            <bndbox><xmax>195.5</xmax><ymin>240</ymin><xmin>48</xmin><ymax>371</ymax></bndbox>
            <part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part>
        </object>
        <object><name>person</name><bndbox><xmin>8</xmin><ymin>12</ymin><xmax>8</xmax><ymax>498</ymax></bndbox></object>
    </annotation>";

    #[test]
    fn objects_come_in_the_order_in_which_they_are_written_and_parts_are_no_objects() {
        let objects = Annotation::parse(TWO.as_bytes()).unwrap().objects;
        assert_eq!(objects.len(), 2);
        assert_eq!(objects[0], VocObject { class: "dog".into(), xmin: 48.0, ymin: 240.0, xmax: 195.5, ymax: 371.0 });
        assert_eq!(objects[1].class, "person");
    }

    #[test]
    fn an_annotation_without_objects_is_valid() {
        assert_eq!(Annotation::parse(b"<annotation/>").unwrap(), Annotation::default());
    }

    #[test]
    fn an_object_that_makes_no_sense_is_named() {
        for (from, to, expected) in [
            ("<ymax>498</ymax>", "<ymax>NaN</ymax>", "object 1 (`person`): `ymax` is `NaN`"),
            ("<ymax>498</ymax>", "<ymax>1e99</ymax>", "object 1 (`person`): `ymax` is `1e99`"),
            ("<ymax>498</ymax>", "<ymax>11</ymax>", "object 1 (`person`): its box ends before"),
            ("<ymax>498</ymax>", "", "object 1 (`person`): its box has no `ymax`"),
            ("<name>person</name>", "", "object 1 (``): has no `name`"),
            ("<name> dog </name>", "<name> </name>", "object 0 (``): has no `name`"),
            ("bndbox", "box", "object 0 (`dog`): has no `bndbox`"),
            ("annotation>", "html>", "`<html>`"),
            ("</annotation>", "", "not valid XML"),
        ] {
            let error = Annotation::parse(TWO.replace(from, to).as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{to}: {error}");
        }
    }

    #[test]
    fn a_cut_is_an_error_and_no_changed_byte_is_a_panic() {
        for length in 0..TWO.len() {
            assert!(Annotation::parse(&TWO.as_bytes()[..length]).is_err(), "{length}");
        }
        for at in 0..TWO.len() {
            for byte in [0, b'<', b'&', b'9', 0xff] {
                let mut xml = TWO.as_bytes().to_vec();
                xml[at] = byte;
                let objects = Annotation::parse(&xml).map_or(Vec::new(), |annotation| annotation.objects);
                assert!(objects.iter().all(|object| object.xmax >= object.xmin && object.ymax >= object.ymin));
            }
        }
    }

    #[test]
    fn hostile_xml_is_refused() {
        let bomb = "<!DOCTYPE a [<!ENTITY b \"bbbbbbbb\"><!ENTITY c \"&b;&b;&b;\">]><annotation>&c;</annotation>";
        assert!(matches!(Annotation::parse(bomb.as_bytes()), Err(VocError::Syntax(_))));
        let deep = format!("<annotation>{}", "<a>".repeat(200_000));
        assert!(Annotation::parse(deep.as_bytes()).is_err());
        assert!(matches!(Annotation::parse(&vec![b' '; MAX_ANNOTATION_BYTES + 1]), Err(VocError::TooLong(_))));
        assert!(matches!(Annotation::parse(b"<annotation>\xff</annotation>"), Err(VocError::NotUtf8)));
        let attributes: String = (0..100_000).map(|number| format!(" a{number}=''")).collect();
        let many = format!("<annotation{}/>", &attributes[..attributes.len().min(1_000_000)]);
        assert!(matches!(Annotation::parse(many.as_bytes()), Err(VocError::TooManyAttributes(_))));
    }
}
