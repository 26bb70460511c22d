//! Jinja as transformers has it, and templates that misbehave.

use super::*;

fn text(template: &str, record: &str) -> Result<String, String> {
    chats(template, TrainOn::All).text(record).map(|rendered| rendered.text).map_err(|error| error.to_string())
}

/// Returns a record; `json!` would sort its fields.
fn simple() -> String {
    let value =
        r#"{"b": "<\"'&\u00e9\u0001\n\ud83d\ude00>", "a": [1, 2.0, 1e16, 1e-7, -0.5, true, null], "e": [], "o": {}}"#;
    format!(
        r#"{{"messages": [{{"role": "user", "content": "a"}}, {{"role": "assistant", "content": "b"}}], "value": {value}}}"#
    )
}

#[test]
fn tojson_is_that_of_python() {
    // json.dumps of Python 3.11
    for (template, expected) in [
        (
            "{{ value | tojson }}",
            "{\"b\": \"<\\\"'&é\\u0001\\n😀>\", \"a\": [1, 2.0, 1e+16, 1e-07, -0.5, true, null], \"e\": [], \"o\": {}}",
        ),
        ("{{ value.b | tojson(ensure_ascii=True) }}", "\"<\\\"'&\\u00e9\\u0001\\n\\ud83d\\ude00>\""),
        ("{{ value.a[:2] | tojson(indent=2) }}", "[\n  1,\n  2.0\n]"),
        ("{{ {'a': [], 'b': {'c': 1}} | tojson(indent=1) }}", "{\n \"a\": [],\n \"b\": {\n  \"c\": 1\n }\n}"),
        (
            "{{ value | tojson(separators=(',', ':'), sort_keys=true) }}",
            "{\"a\":[1,2.0,1e+16,1e-07,-0.5,true,null],\"b\":\"<\\\"'&é\\u0001\\n😀>\",\"e\":[],\"o\":{}}",
        ),
    ] {
        assert_eq!(text(template, &simple()).unwrap(), expected, "{template}");
    }
    let refused = text("\n\n{{ nothing | tojson }}", &simple()).unwrap_err();
    assert!(refused.contains("line 3: tojson got undefined"), "{refused}");
}

#[test]
fn methods_and_tests_are_those_of_python() {
    for (template, expected) in [
        (
            "{{ ' a\u{1f} '.strip() }}|{{ 'xxaxx'.lstrip('x') }}|{{ 'xxaxx'.rstrip('x') }}|{{ '\u{1c}a ' | trim }}",
            "a|axx|xxa|a",
        ),
        (
            "{{ 'a.b.c'.rsplit('.', 1) }}{{ 'a=b'.partition('=') | list }}{{ 'ab'.removeprefix('a') }}",
            "['a.b', 'c']['a', '=', 'b']b",
        ),
        (
            "{{ 'a b'.split() | length }}{{ 'a</t>b'.split('</t>')[-1] }}{{ 'ab'.startswith('a') }}{{ 'é'.upper() }}",
            "2bTrueÉ",
        ),
        (
            "{% for k, v in value.items() %}{{ k }}{% endfor %}{{ value.get('z', 'no') }}{{ value.keys() | list | length }}",
            "baeono4",
        ),
        (
            "{{ none is iterable }}{{ 'a' is iterable }}{{ tools is none }}{{ true }}{{ none }}{{ nothing }}",
            "FalseTrueTrueTrueNone",
        ),
        ("{{ messages[::-1][0].content }}{{ messages[1:] | length }}{{ '%s' | format('x') }}", "b1x"),
        (
            "{% for m in messages %}\n    {% if loop.index > 1 %}{% break %}{% endif %}\n{{ m.content }}\n{% endfor %}",
            "a\n",
        ),
        ("{{ strftime_now('%d %b %Y') }}", "01 Jan 1970"),
        ("a\r\nb\r", "a\nb"),
    ] {
        assert_eq!(text(template, &simple()).unwrap(), expected, "{template}");
    }
}

#[test]
fn errors_name_the_line() {
    for (template, expected) in [
        (
            "\n{{ raise_exception('no ' + messages[0].role) }}",
            "template `a.jinja` line 2: it refuses the conversation: no user",
        ),
        ("\n\n{{ messages[0].content.nothing() }}", "line 3: unknown method"),
        ("{{ nothing.at.all }}", "line 1: undefined value"),
        ("{{ strftime_now('%Q') }}", "line 1: strftime_now knows no `%Q`"),
    ] {
        let refused = text(template, &simple()).unwrap_err();
        assert!(refused.contains(expected), "{template}: {refused}");
    }
    let template = ChatTemplate::from_jinja("b.jinja", "a\n{% if %}");
    let refused = Chats::new(&template, ChatOptions::default()).unwrap_err().to_string();
    assert!(refused.starts_with("template `b.jinja` line 2: "), "{refused}");
}

#[test]
fn work_memory_and_depth_are_bounded() {
    for (template, expected) in [
        ("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", "more work"),
        (
            "{% set ns = namespace(a='aaaaaaaa') %}{% for n in range(99) %}{% set ns.a = ns.a + ns.a %}{% endfor %}",
            "more work",
        ),
        ("{{ 'a' * 99999999999 }}", "more work"),
        ("{{ range(999999999) | list }}", ""),
        ("{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}", "recursion"),
        ("{{ ('a' * 99999).replace('a', 'a' * 99999) }}", "more work"),
    ] {
        let refused = text(template, &simple()).unwrap_err();
        assert!(refused.contains("line 1") && refused.contains(expected), "{template}: {refused}");
    }
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    let record = json!({"messages": [user("a"), assistant("b")], "deep": deep}).to_string();
    assert_eq!(text("{{ deep | tojson }}", &record).unwrap(), format!("{}1{}", "[".repeat(100), "]".repeat(100)));
    let wrapped = "{% set ns = namespace(a=deep) %}{% for n in range(99) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a | tojson }}";
    assert!(text(wrapped, &record).unwrap_err().contains("nested more than 128"));
}

#[test]
fn a_list_that_has_itself_many_times_is_no_more_text_than_is_allowed() {
    // The list `ns.a` has a list twice, that one another one twice, and so on.
    let begin = "{% set ns = namespace(a=1) %}{% for n in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}";
    for end in [
        "{{ ns.a }}",
        "{{ ns.a | tojson }}",
        "{{ ns.a | trim }}",
        "{{ raise_exception(ns.a) }}",
        "{{ [1] | tojson(separators=[ns.a, ns.a]) }}",
        "{% set a = 'a' * 999999 %}{{ [[[[a]]], a] | tojson(indent=a) }}",
    ] {
        let template = ChatTemplate::from_jinja("a.jinja", &format!("{begin}{end}"));
        let options = ChatOptions { max_work: 1 << 15, ..ChatOptions::default() };
        let refused = Chats::new(&template, options).unwrap().text(&simple()).unwrap_err().to_string();
        assert_eq!(
            refused, "template `a.jinja` line 1: it does more work for one conversation than is allowed",
            "{end}"
        );
    }
}

#[test]
fn the_template_is_taken_from_the_settings() {
    let record = |tools: Json| json!({"messages": [user("a"), assistant("b")], "tools": tools}).to_string();
    let text = |config: Json, record: &str| {
        let template = ChatTemplate::from_config("c.json", &config.to_string()).map_err(|error| error.to_string())?;
        let chats = Chats::new(&template, ChatOptions { train_on: TrainOn::All, ..ChatOptions::default() }).unwrap();
        Ok::<_, String>(chats.text(record).unwrap().text)
    };
    let one =
        json!({"chat_template": "{{ bos_token }}{{ eos_token }}", "bos_token": {"content": "<s>"}, "eos_token": null});
    assert_eq!(text(one, &record(json!(null))).unwrap(), "<s>");
    let named = json!({"chat_template": [
        {"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools[0].function.name }}"},
    ]});
    assert_eq!(text(named.clone(), &record(json!([]))).unwrap(), "plain");
    assert_eq!(text(named, &record(tools())).unwrap(), "weather");
    for (config, expected) in [
        (json!({}), "`c.json`: has no `chat_template`"),
        (json!({"chat_template": 5}), "neither a text nor a list"),
        (json!({"chat_template": []}), "is a list without a template"),
        (json!([]), "is no object"),
    ] {
        assert!(text(config, "").unwrap_err().contains(expected));
    }
}

#[test]
fn a_template_is_chosen_by_its_name() {
    let named = |names: [&str; 2]| {
        let templates = names.map(|name| json!({"name": name, "template": format!("{name}{{{{ nothing.at.all }}}}")}));
        ChatTemplate::from_config("c.json", &json!({"chat_template": templates}).to_string()).unwrap()
    };
    let options = ChatOptions { train_on: TrainOn::All, ..ChatOptions::default() };
    let refused = |template: &ChatTemplate| Chats::new(template, options).unwrap_err().to_string();
    let expected = "`c.json`: has no chat template `default`, but `rag`, `tool_use`: choose one with --template";
    assert_eq!(refused(&named(["tool_use", "rag"])), expected);
    assert!(Chats::new(&named(["tool_use", "rag"]).only("rag").unwrap(), options).is_ok());
    let refused = named(["default", "rag"]).only("tools").unwrap_err().to_string();
    assert_eq!(refused, "`c.json`: has no chat template `tools`, but `default`, `rag`: choose one with --template");
    // An error names the file that the template comes from, and a chosen one is for conversations with tools, too.
    let record = |tools: Json| json!({"messages": [user("a"), assistant("b")], "tools": tools}).to_string();
    let refused = |template: &ChatTemplate, tools: Json| {
        Chats::new(template, options).unwrap().text(&record(tools)).unwrap_err().to_string()
    };
    let two = ChatTemplate::from_jinja("a.jinja", "{{ a.b.c }}").with_tool_use("more/b.jinja", "\n{{ a.b.c }}");
    assert!(refused(&two, json!(null)).starts_with("template `a.jinja` line 1: "));
    assert!(refused(&two, tools()).starts_with("template `more/b.jinja` line 2: "));
    assert!(refused(&two.clone().only("default").unwrap(), tools()).starts_with("template `a.jinja` line 1: "));
    assert_ne!(two.fingerprint(), two.clone().only("default").unwrap().fingerprint());
}

#[test]
fn a_special_token_that_nobody_tells_is_missed() {
    let template = ChatTemplate::from_jinja("a.jinja", "{{ bos_token }}");
    let refused = Chats::new(&template, ChatOptions::default()).unwrap_err().to_string();
    assert!(refused.contains("it uses `bos_token`") && refused.contains("tokenizer_config.json"), "{refused}");
    assert!(Chats::new(&ChatTemplate::from_jinja("a.jinja", CHATML), ChatOptions::default()).is_ok());
}
