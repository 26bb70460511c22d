//! Chat templates, which come with models that other people made, and records with conversations.

use spdl_text::chat::{ChatOptions, ChatTemplate, Chats, TrainOn};

use crate::input::{FuzzInput, append_piece};

/// The work that a template may do: its texts have at most 64 times as many bytes.
const MAX_WORK: u64 = 1 << 14;
/// The turns of a conversation, of each of which the template is rendered a few times.
const MAX_TURNS: usize = 16;

const SETTINGS: &str = r#"{"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": [
    {"name": "default", "template": "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}"},
    {"name": "tool_use", "template": "{{ tools | tojson(indent=2) }}{% for m in messages %}{{ m.content }}{% endfor %}"}]}"#;
const PLAIN: &str = "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content.strip() }}</s>{% endgeneration %}{% else %}\
    {{ m.role }}: {{ m['content'] }}{% endif %}{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}";
const ODD: &str = "{%- macro of(a) -%}{{ a | tojson }}{%- endmacro -%}{% raw %}{% generation %}{% endraw %}{# {% generation %} #}{{ strftime_now('%d %b %Y') }}\
    {% set ns = namespace(last=none) %}{% for m in messages %}{% if loop.first and m.role != 'system' %}{{ of(m) }}{% set ns.last = [ns.last, m] %}{% endif %}\
    {{ m.content.split('</think>')[-1].lstrip('\\n') }}{% if m.role not in ['user', 'assistant'] %}{{ raise_exception('no ' + m.role) }}{% endif %}{% endfor %}";
const RECORDS: [&str; 4] = [
    r#"{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0}, {"role": "user", "content": ""}, {"role": "assistant", "content": " c\n"}]}"#,
    r#"{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "tools": "[{\"type\": \"function\"}]", "enable_thinking": false}"#,
    r#"{"instruction": "a", "input": "", "output": "\u00e9"}"#,
    r#"{"prompt": "a", "completion": "b"}"#,
];

/// Checks that a template that compiles ends within its work, and that what is learned of its text lies in the text, in order.
pub(crate) fn read(data: &[u8]) {
    let mut input = FuzzInput(data);
    let (of_settings, train_on) = (input.byte() % 2 == 0, input.byte());
    let (template, record) = (input.piece(), input.0);
    let (Ok(template), Ok(record)) = (str::from_utf8(template), str::from_utf8(record)) else { return };
    let template = match of_settings {
        true => ChatTemplate::from_config("tokenizer_config.json", template),
        false => {
            ChatTemplate::from_jinja("chat_template.jinja", template).with_tokens_of("tokenizer_config.json", SETTINGS)
        }
    };
    let Ok(template) = template else { return };
    let train_on = [TrainOn::Assistant, TrainOn::Last, TrainOn::All][usize::from(train_on % 3)];
    let Ok(chats) = Chats::new(&template, ChatOptions { train_on, max_work: MAX_WORK, ..ChatOptions::default() })
    else {
        return;
    };
    if record.matches('{').count() > MAX_TURNS {
        return;
    }
    let Ok(made) = chats.text(record) else { return };
    assert!(made.text.len() as u64 <= MAX_WORK * 64, "{} bytes", made.text.len());
    let mut at = 0;
    for span in made.learned {
        assert!(
            at <= span.start && span.start < span.end && made.text.get(span.clone()).is_some(),
            "{span:?} after {at}"
        );
        at = span.end;
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let templates = [(0, SETTINGS), (1, PLAIN), (1, ODD)];
    let seed = |(number, ((kind, template), record)): (u8, ((u8, &str), &str))| {
        let mut seed = vec![kind, number];
        append_piece(&mut seed, template.as_bytes());
        seed.extend(record.as_bytes());
        seed
    };
    let all = templates.iter().flat_map(|template| RECORDS.map(|record| (*template, record)));
    (0..).zip(all).map(seed).collect()
}
