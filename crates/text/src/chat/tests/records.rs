//! The forms of records, and what is wrong with some.

use super::*;

fn learned(record: &Json) -> String {
    rendered(&stock(CHATML), TrainOn::Assistant, record).unwrap()
}

fn refused(record: &Json) -> String {
    rendered(&stock(CHATML), TrainOn::Assistant, record).unwrap_err()
}

#[test]
fn all_forms_give_the_same_text() {
    let expected = learned(&json!({"messages": [{"role": "system", "content": "s"}, user("a\nb"), assistant("c")]}));
    for record in [
        json!({"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "a\nb"}, {"from": "gpt", "value": "c"}]}),
        json!({"conversations": [{"from": "user", "value": "a\nb"}, {"from": "model", "value": "c"}], "system": "s"}),
        json!({"messages": [{"role": "system", "content": "s"}, {"role": "human", "content": "a\nb"}, {"role": "bot", "content": "c"}]}),
        json!({"instruction": "a", "input": "b", "output": "c", "system": "s"}),
        json!({"query": "a\nb", "context": "", "answer": "c", "system_prompt": "s"}),
        json!({"prompt": "a\nb", "completion": "c", "system": "s"}),
        json!({"prompt": [{"role": "system", "content": "s"}, user("a\nb")], "completion": [assistant("c")]}),
    ] {
        assert_eq!(learned(&record), expected, "{record}");
    }
}

#[test]
fn of_a_prompt_with_turns_only_the_completion_is_learned() {
    let record = json!({"prompt": [user("a"), assistant("b"), user("c")], "completion": [assistant("d")]});
    assert_eq!(learned(&record).matches("[[").count(), 1);
    assert!(learned(&record).ends_with("[[d<|im_end|>\n]]"));
}

#[test]
fn calls_and_answers_of_tools_are_known_in_sharegpt() {
    let call = r#"{"name": "weather", "arguments": {"city": "Zürich", "days": 1.5}}"#;
    let tools = tools();
    let record = json!({"conversations": [
        {"from": "human", "value": "a"}, {"from": "function_call", "value": call}, {"from": "observation", "value": "21"},
        {"from": "gpt", "value": "b"},
    ], "tools": tools.to_string()});
    let same = json!({"messages": [user("a"), tool_call(), {"role": "tool", "content": "21"}, assistant("b")], "tools": tools});
    let text = |record| rendered(QWEN3, TrainOn::Assistant, record).unwrap();
    assert_eq!(text(&record), text(&same));
    assert!(text(&record).contains(r#"[[<tool_call>"#), "{}", text(&record));
}

#[test]
fn a_system_message_that_the_template_leaves_out_is_an_error() {
    let without = "{% for m in messages if m.role != 'system' %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}";
    let merged = "{% for m in messages[1:] %}{{ m.role }}: {{ (messages[0].content | trim ~ '|' if loop.first else '') ~ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}";
    let record = |system| json!({"messages": [{"role": "system", "content": system}, user("a"), assistant("b")]});
    let error = rendered(without, TrainOn::Assistant, &record("Be terse.\nAlways.")).unwrap_err();
    let expected =
        "template `a.jinja` does not write its system message `messages[0]`: take that out of the record, or give";
    assert!(error.starts_with(expected), "{error}");
    assert_eq!(rendered(without, TrainOn::All, &record(" \n")).unwrap(), "[[user: a\nassistant: b\n]]");
    let text = rendered(merged, TrainOn::Assistant, &record("\n Be terse.\n Always.\n")).unwrap();
    assert_eq!(text, "user: Be terse.\n Always.|a\nassistant: [[b\n]]");
}

#[test]
fn other_fields_reach_the_template() {
    let template = "{{ range(1)[0] }}{{ bos_token }}{{ style }}{{ enable_thinking }}{{ documents[0].title }}{% for m in messages %}{{ m.content }}{% endfor %}";
    let record = json!({
        "messages": [user("a"), assistant("b")], "style": "plain", "documents": [{"title": "T"}], "add_generation_prompt": true,
        "bos_token": "no", "range": 5, "chat_template_kwargs": {"enable_thinking": false},
    });
    assert_eq!(rendered(template, TrainOn::Assistant, &record).unwrap(), "0<s>plainFalseTa[[b]]");
}

#[test]
fn parts_of_a_content_are_passed_on() {
    let record = json!({"messages": [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": " b"}]}, assistant("c"),
    ]});
    let gemma = rendered(&stock(GEMMA), TrainOn::Assistant, &record).unwrap();
    assert_eq!(gemma, "<s><start_of_turn>user\nab<end_of_turn>\n<start_of_turn>model\n[[c<end_of_turn>\n]]");
    let image = json!({"messages": [{"role": "user", "content": [{"type": "image"}]}, assistant("c")]});
    assert!(refused(&image).contains("`messages[0].content[0]` is of type `image`"), "{}", refused(&image));
}

#[test]
fn what_is_wrong_is_named() {
    for (record, expected) in [
        (json!({"id": 1, "text": "a"}), "its fields are `id`, `text`; a chat has `messages`"),
        (json!({}), "its fields are none"),
        (json!([1]), "a record is an object with fields, not a list"),
        (json!({"instruction": "a"}), "its fields are `instruction`"),
        (json!({"messages": "a"}), "`messages` is a text, not a list"),
        (json!({"messages": [user("a")]}), "no assistant turn; its roles are `user`"),
        (
            json!({"messages": [user("a"), {"role": "asistant", "content": "b"}]}),
            "`messages[1]` has the role `asistant`",
        ),
        (
            json!({"messages": [user("a"), {"content": "b", "name": "c"}]}),
            "`messages[1]` has no `role` (or `from`); its fields are `content`, `name`",
        ),
        (json!({"messages": [user("a"), 5]}), "`messages[1]` is a number, not an object"),
        (
            json!({"messages": [{"role": "user", "content": 5}, assistant("b")]}),
            "`messages[0].content` is a number, not a text",
        ),
        (
            json!({"messages": [user("a"), assistant(" \n")]}),
            "`messages[1]` is a turn of the assistant without content",
        ),
        (
            json!({"messages": [user("a"), {"role": "assistant", "content": null}]}),
            "`messages[1]` is a turn of the assistant without content",
        ),
        (json!({"prompt": "a", "completion": ""}), "`completion` is a turn of the assistant without content"),
        (json!({"prompt": "a", "completion": 7}), "`completion` is a number, not a text"),
        (
            json!({"messages": [user("a"), {"role": "assistant", "content": "b", "weight": 0.5}]}),
            "`messages[1].weight` is `0.5`; it is 0 or 1",
        ),
        (
            json!({"messages": [{"role": "user", "content": "a", "weight": 1}, assistant("b")]}),
            "`messages[0].weight` is 1, but its role is `user`",
        ),
        (json!({"messages": [user("a"), assistant("b")], "tools": "{"}), "`tools` is no JSON"),
        (json!({"messages": [user("a\u{10fff0}"), assistant("b")]}), "private characters"),
    ] {
        assert!(refused(&record).contains(expected), "{record}: {}", refused(&record));
    }
    let broken = chats(CHATML, TrainOn::All).text("{\"messages\"").unwrap_err().to_string();
    assert!(broken.starts_with("it is no JSON: "), "{broken}");
    let many = json!({"messages": vec![assistant("a"); 4097]});
    assert!(refused(&many).contains("4097 messages"));
}
