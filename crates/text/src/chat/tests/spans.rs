//! What of a conversation is learned.

use super::*;

fn conversations() -> Vec<Json> {
    let answer = json!({"role": "tool", "name": "weather", "content": "21 \u{b0}C"});
    let thinking =
        |content, thinking: &str| json!({"role": "assistant", "content": content, "reasoning_content": thinking});
    vec![
        json!({"messages": [user("Hello"), assistant("Hi \u{1f44b}\u{1f3fd}")]}),
        json!({"messages": [user(" 2+2?\n"), assistant("4\n\nYes. "), user("\u{6f22}\u{5b57}"), assistant("Hi"), user("!"), assistant("Hi")]}),
        json!({"messages": [{"role": "system", "content": "Be terse."}, user("a"), assistant("a"), user("a"), assistant("a")]}),
        json!({"messages": [user("a"), thinking("b", "first"), user("c"), thinking("d", "second")]}),
        json!({"messages": [user("a"), assistant("<think>\nx\n</think>\n\nb"), user("c"), assistant("<think>\ny\n</think>\n\nd")]}),
        json!({"messages": [user("a"), assistant("b"), user("c")]}),
        json!({"messages": [user("Rain?"), tool_call(), answer, assistant("No."), user("Sure?"), tool_call(), answer, assistant("Yes.")], "tools": tools()}),
        json!({"messages": [user("a"), assistant("b"), user("c"), assistant("d")], "tools": tools()}),
    ]
}

#[test]
fn turns_are_found_where_generation_is_put_by_hand() {
    let mut compared = 0;
    for (name, template) in TEMPLATES {
        for conversation in conversations() {
            for train_on in [TrainOn::Assistant, TrainOn::Last] {
                match rendered(template, train_on, &conversation) {
                    Ok(by_hand) => {
                        assert!(by_hand.contains("[["), "{name}: {by_hand}");
                        assert_eq!(rendered(&stock(template), train_on, &conversation), Ok(by_hand), "{name}");
                        compared += 1;
                    }
                    // Gemma's turns alternate, and it has none of tools.
                    Err(refused) => assert!(name == "gemma" && refused.contains("alternate"), "{name}: {refused}"),
                }
            }
        }
    }
    assert_eq!(compared, 2 * (6 * 8 - 1));
}

#[test]
fn a_turn_begins_after_its_prompt_and_ends_after_its_end_token() {
    let record = json!({"messages": [user("a"), assistant("b"), user("a"), assistant("b")]});
    let expected = |turn: &str| format!("<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n{turn}");
    let turn = expected("[[b<|im_end|>\n]]");
    assert_eq!(rendered(&stock(CHATML), TrainOn::Assistant, &record).unwrap(), turn.repeat(2));
    let last = expected("b<|im_end|>\n") + &turn;
    assert_eq!(rendered(&stock(CHATML), TrainOn::Last, &record).unwrap(), last);
    assert_eq!(rendered(CHATML, TrainOn::Last, &record).unwrap(), last);
    let whole = format!("[[{}]]", expected("b<|im_end|>\n").repeat(2));
    assert_eq!(rendered(CHATML, TrainOn::All, &record).unwrap(), whole);
}

#[test]
fn earlier_turns_that_are_written_otherwise_are_found() {
    // Without their thinking, or with another end token than the last turn, which is that of the prompt's first text.
    let record = json!({"messages": [
        user("a"), {"role": "assistant", "content": "b", "thinking": "x"}, user("c"), {"role": "assistant", "content": "d", "thinking": "y"},
    ]});
    let gpt_oss = rendered(&stock(GPT_OSS), TrainOn::Assistant, &record).unwrap();
    let (_, turns) = gpt_oss.split_once("<|start|>user<|message|>a<|end|>").unwrap();
    let expected = "<|start|>assistant[[<|channel|>final<|message|>b<|end|>]]<|start|>user<|message|>c<|end|>\
                    <|start|>assistant[[<|channel|>analysis<|message|>y<|end|><|start|>assistant<|channel|>final<|message|>d<|return|>]]";
    assert_eq!(turns, expected);
    // The prompt opens the thinking, which the first turn does not have.
    let thinks = "{% for m in messages %}{% if m.role == 'user' %}{{ 'U:' + m.content + '\n' }}{% else %}\
                  {{ 'A:' + ('<think>' + m.thinking + '</think>' if loop.last else '') + m.content + '\n' }}{% endif %}{% endfor %}\
                  {% if add_generation_prompt %}{{ 'A:<think>' }}{% endif %}";
    let expected = "U:a\nA:[[b\n]]U:c\nA:<think>[[y</think>d\n]]";
    assert_eq!(rendered(thinks, TrainOn::Assistant, &record).unwrap(), expected);
}

#[test]
fn weights_choose_turns() {
    let turn = |content: &str, weight: f64| json!({"role": "assistant", "content": content, "weight": weight});
    let record = json!({"messages": [user("a"), turn("b", 0.0), user("c"), turn("d", 1.0)]});
    for template in [CHATML, &stock(CHATML)] {
        let one = rendered(template, TrainOn::Assistant, &record).unwrap();
        assert!(one.contains("assistant\nb<|im_end|>") && one.ends_with("[[d<|im_end|>\n]]"), "{one}");
        let all = rendered(template, TrainOn::All, &record).unwrap();
        assert!(
            all.starts_with("[[<|im_start|>user") && all.contains("assistant\n]]b<|im_end|>\n[[<|im_start|>"),
            "{all}"
        );
        let none = json!({"messages": [user("a"), turn("b", 0.0)]});
        let refused = rendered(template, TrainOn::Assistant, &none).unwrap_err();
        assert!(refused.contains("`weight`"), "{refused}");
    }
}

#[test]
fn several_generation_blocks_of_a_turn_belong_to_it() {
    let template = "{% for m in messages %}{{ m.role[0] + ':' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}\
                    {% endgeneration %}|{% generation %}{{ '$' }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{{ '\n' }}\
                    {% endfor %}{% if add_generation_prompt %}{{ 'a:' }}{% endif %}";
    let record = json!({"messages": [user("a"), assistant("b"), user("c"), assistant("d")]});
    assert_eq!(rendered(template, TrainOn::Last, &record).unwrap(), "u:a\na:b|$\nu:c\na:[[d]]|[[$]]\n");
}

#[test]
fn what_cannot_be_told_is_refused_with_the_line() {
    // The turns are written in reverse.
    let template = "{% for m in messages[::-1] %}\n{{ m.role }}: {{ m.content }}\n{% endfor %}";
    let record = json!({"messages": [user("a"), assistant("b"), user("c"), assistant("d")]});
    let refused = rendered(template, TrainOn::Assistant, &record).unwrap_err();
    assert!(refused.starts_with("template `a.jinja` line 2: ") && refused.contains("`messages[1]`"), "{refused}");
    // A prompt that ends the thinking, before a turn that has some.
    let template = "{% for m in messages %}{{ m.role[0] + ':' + (m.thinking or '') + '>' + m.content }}{% endfor %}\n\
                    {% if add_generation_prompt %}{{ 'a:>' }}{% endif %}";
    let record = json!({"messages": [user("a"), {"role": "assistant", "content": "b", "thinking": "x"}]});
    let refused = rendered(template, TrainOn::Assistant, &record).unwrap_err();
    assert!(refused.contains("line 1") && refused.contains("`messages[1]`"), "{refused}");
}

#[test]
fn a_template_that_marks_nothing_is_refused_with_its_line() {
    let template = "{% for m in messages %}\n{% if m.role == 'model' %}\n{% generation %}{{ m.content }}{% endgeneration %}\n{% else %}\n\
                    {{ m.content }}\n{% endif %}\n{% endfor %}";
    let record = json!({"messages": [user("a"), assistant("b")]});
    let refused = rendered(template, TrainOn::Assistant, &record).unwrap_err();
    assert!(refused.starts_with("template `a.jinja` line 3: nothing of the conversation"), "{refused}");
}
