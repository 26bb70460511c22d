//! From learned pieces of a text to learned tokens.

use super::*;
use crate::chat::{ChatDocument, TokenPieces};

fn document(template: &str, tokenizer: &PipelineTokenizer, record: &Json) -> ChatDocument {
    chats(template, TrainOn::Assistant).document(&record.to_string(), tokenizer).unwrap()
}

fn of_learned(document: &ChatDocument, learned: bool, tokenizer: &PipelineTokenizer) -> String {
    let ids = document.ids.iter().zip(&document.learned).filter(|(_, is)| **is == learned).map(|(id, _)| *id);
    tokenizer.decode(&ids.collect::<Vec<_>>(), false).unwrap()
}

#[test]
fn tokens_of_learned_text_are_learned() {
    let tokenizer = tokenizer(&json!(null));
    let record = json!({"messages": [user("\u{1f44b}"), assistant("\u{6f22} \u{1f44b}\u{1f3fd}")]});
    for template in [CHATML, &stock(CHATML)] {
        let document = document(template, &tokenizer, &record);
        assert_eq!(document.ids.len(), document.learned.len());
        assert_eq!(of_learned(&document, true, &tokenizer), "\u{6f22} \u{1f44b}\u{1f3fd}<|im_end|>\n");
        let rest = "<|im_start|>user\n\u{1f44b}<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(of_learned(&document, false, &tokenizer), rest);
    }
}

#[test]
fn tokens_are_found_in_text_that_a_normalizer_changes() {
    for normalizer in [
        json!({"type": "NFC"}),
        json!({"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Replace", "pattern": {"String": "e"}, "content": "eee"}]}),
    ] {
        let tokenizer = tokenizer(&normalizer);
        let record = json!({"messages": [user("cafe\u{301} \u{fb01}"), assistant("cafe\u{301}!"), user("e\u{301}"), assistant("no\u{308}")]});
        let document = document(&stock(CHATML), &tokenizer, &record);
        let spoken = document.ids.chunk_by(|_, next| *next != 258).map(<[u32]>::to_vec).collect::<Vec<_>>();
        assert_eq!(spoken.len(), 4);
        let learned = of_learned(&document, true, &tokenizer);
        let expected: String = ["cafe\u{301}!<|im_end|>\n", "no\u{308}<|im_end|>\n"]
            .iter()
            .map(|text| tokenizer.decode(&TokenPieces::encode(&tokenizer, text).unwrap(), false).unwrap())
            .collect();
        assert_eq!(learned, expected, "{normalizer}");
        assert_ne!(learned, "cafe\u{301}!<|im_end|>\nno\u{308}<|im_end|>\n");
    }
}

#[test]
fn a_token_across_the_border_is_learned() {
    // The prompt ends inside of `<think>`, which is one token.
    let template = "{% for m in messages %}{{ m.role[0] + ':<thi' + ('nk>' if m.role == 'assistant' else '') + m.content + '\n' }}{% endfor %}\
                    {% if add_generation_prompt %}{{ 'a:<thi' }}{% endif %}";
    let tokenizer = tokenizer(&json!(null));
    let document = document(template, &tokenizer, &json!({"messages": [user("a"), assistant("b")]}));
    assert_eq!(of_learned(&document, true, &tokenizer), "<think>b\n");
}

#[test]
fn a_document_has_parts_that_are_learned() {
    let tokenizer = tokenizer(&json!(null));
    let record = json!({"messages": [user("a\u{1b}[2J\u{202e}"), assistant("b\u{e9}")]});
    let parts = document(&stock(CHATML), &tokenizer, &record).parts(&tokenizer);
    let shown: Vec<_> = parts.iter().map(|part| (part.text.as_str(), part.learned, part.is_added)).collect();
    let expected = [
        ("<|im_start|>", false, true),
        ("user\na\u{1b}[2J\u{202e}", false, false),
        ("<|im_end|>", false, true),
        ("\n", false, false),
        ("<|im_start|>", false, true),
        ("assistant\n", false, false),
        ("b\u{e9}", true, false),
        ("<|im_end|>", true, true),
        ("\n", true, false),
    ];
    assert_eq!(shown, expected);
}
