//! What servers send, well and badly.

use proptest::prelude::*;
use relevo_shared::platform::sse::{Frame, Parser};

use super::*;
use crate::agent::openai::trouble::Kind;

/// Reads a body cut at every so many bytes, as the agent does.
fn read(body: &[u8], size: usize) -> Result<(String, Finished), Trouble> {
    let (mut parser, mut answer, mut said) = (Parser::new(1 << 20), Answer::default(), String::new());
    for piece in body.chunks(size) {
        parser.feed(piece).unwrap();
        while let Some(frame) = parser.frame() {
            if let Frame::Event { data, .. } = frame {
                said.push_str(&answer.event(&data, &Secrets::default())?);
            }
        }
    }
    Ok((said, answer.end()?))
}

fn delta(text: &str) -> String {
    format!(
        "data: {}\n\n",
        json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]})
    )
}

const STOP: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

#[test]
fn a_usual_stream_is_read_however_it_is_cut() {
    let body = [
        ": OPENROUTER PROCESSING\n\n",
        "data: {\"model\":\"m-1\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null,\"refusal\":null}}]}\n\n",
        &delta("Grüße"),
        "event: message\nid: 7\nretry: 10\ndata: {\"choices\":[{\"index\":0,\ndata: \"delta\":{\"content\":\" all\"}}]}\n\n",
        "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"another\"}}]}\n\n",
        STOP,
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":5,\"total_tokens\":8,\"x\":{}}}\n\n",
        "data: [DONE]\n\n",
        "data: what follows is not read\n\n",
    ]
    .concat();
    for ending in ["\n", "\r\n", "\r"] {
        let body = body.replace('\n', ending);
        for size in [1, 2, 3, 7, 64, body.len()] {
            let (said, finished) = read(body.as_bytes(), size).unwrap();
            assert_eq!((said.as_str(), finished.text.as_str()), ("Grüße all", "Grüße all"));
            assert_eq!(
                serde_json::to_value(&finished.metadata()[TURN][MODEL]).unwrap(),
                json!({
                    "name": "m-1", "finishReason": "stop",
                    "usage": {"promptTokens": 3, "completionTokens": 5, "totalTokens": 8},
                })
            );
        }
    }
}

#[test]
fn a_stream_is_whole_when_it_says_so_or_says_why_the_model_stopped() {
    let text = delta("a");
    assert!(read(format!("{text}{STOP}").as_bytes(), 5).is_ok(), "no [DONE]");
    assert!(
        read(format!("{text}data: [DONE]\n\n").as_bytes(), 5).is_ok(),
        "no reason"
    );
    for cut in [
        text.clone(),
        String::new(),
        format!("{text}data: [DO"),
        format!("{text}data: {{\"choices\""),
    ] {
        let trouble = read(cut.as_bytes(), 5).unwrap_err();
        assert_eq!((trouble.kind, trouble.label), (Kind::Passing, "broken"), "{cut}");
    }
}

#[test]
fn what_the_model_stopped_for_is_told() {
    let with = |word: &str, text: &str| {
        let stop = STOP.replace("\"stop\"", &format!("\"{word}\""));
        read(format!("{}{stop}data: [DONE]\n\n", delta(text)).as_bytes(), 9)
    };
    for (word, label) in [
        ("stop", "stop"),
        ("length", "length"),
        ("eos", "other"),
        ("tool_calls", "other"),
    ] {
        let (_, finished) = with(word, "a").unwrap();
        assert_eq!(finished.label, label);
        assert_eq!(finished.metadata()[TURN][MODEL]["finishReason"], word);
    }
    for (word, text) in [("content_filter", "a"), ("tool_calls", ""), ("function_call", "")] {
        let trouble = with(word, text).unwrap_err();
        assert_eq!(trouble.kind, Kind::Lasting, "{word}");
    }
}

#[test]
fn a_refusal_is_what_the_model_says() {
    let body =
        "data: {\"choices\":[{\"delta\":{\"refusal\":\"I can't\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let (said, finished) = read(body.as_bytes(), 4).unwrap();
    assert_eq!(said, "I can't");
    assert_eq!(finished.metadata()[TURN][MODEL]["refused"], true);
}

#[test]
fn errors_in_a_stream_and_garbage_are_no_answer() {
    for (data, label, part) in [
        ("{\"error\":{\"message\":\"overloaded\"}}", "server_error", "overloaded"),
        (
            "{\"error\":\"overloaded\",\"choices\":[]}",
            "server_error",
            "overloaded",
        ),
        (
            "{\"object\":\"error\",\"message\":\"overloaded\",\"code\":500}",
            "server_error",
            "overloaded",
        ),
        ("{\"choices\":", "invalid", "cannot be read"),
        (
            "{\"choices\":[{\"delta\":{\"content\":1}}]}",
            "invalid",
            "cannot be read",
        ),
        ("[1]", "invalid", "cannot be read"),
        ("null", "invalid", "cannot be read"),
        ("hello", "invalid", "cannot be read"),
    ] {
        let trouble = read(format!("{}data: {data}\n\n", delta("a")).as_bytes(), 6).unwrap_err();
        assert_eq!((trouble.kind, trouble.label), (Kind::Passing, label), "{data}");
        assert!(trouble.text.contains(part), "{data}: {}", trouble.text);
    }
}

#[test]
fn what_says_nothing_of_a_first_choice_is_no_answer() {
    let nothing = [
        json!({}),
        json!({"choices": []}),
        json!({"choices": [{}]}),
        json!({"choices": [{"index": 0, "finish_reason": null}]}),
        json!({"choices": [{"index": 1, "delta": {"content": "another"}, "finish_reason": "stop"}]}),
    ];
    let unreadable = |trouble: Trouble| (trouble.kind, trouble.label) == (Kind::Passing, "invalid");
    for said in &nothing {
        let body = format!("data: {said}\n\ndata: [DONE]\n\n");
        assert!(unreadable(read(body.as_bytes(), 9).unwrap_err()), "{said}");
        let mut answer = Answer::default();
        answer.whole(said.to_string().as_bytes(), &Secrets::default()).unwrap();
        assert!(unreadable(answer.end().unwrap_err()), "{said}");
    }
    assert!(unreadable(read(b"data: [DONE]\n\n", 3).unwrap_err()));
    // A model may have nothing to say.
    let (_, finished) = read(STOP.as_bytes(), 9).unwrap();
    assert_eq!((finished.text.as_str(), finished.label), ("", "stop"));
}

#[test]
fn credentials_that_the_model_quotes_are_struck_out() {
    let secrets = Secrets::new([relevo_shared::platform::config::Secret::new("sk-0123456789")]);
    let said = json!({"choices": [{"delta": {"content": "you sent sk-0123456789"}, "finish_reason": "stop"}]});
    let mut answer = Answer::default();
    assert_eq!(answer.event(&said.to_string(), &secrets).unwrap(), "you sent ***");
    assert_eq!(answer.end().unwrap().text, "you sent ***");
}

#[test]
fn an_answer_has_an_end() {
    let mut answer = Answer::default();
    let piece = json!({"choices": [{"delta": {"content": "\u{1}".repeat(10_000)}}]}).to_string();
    let taken = (0..10).try_for_each(|_| answer.event(&piece, &Secrets::default()).map(drop));
    assert_eq!(taken.unwrap_err().kind, Kind::TooMuch);
}

#[test]
fn a_whole_answer_is_read_like_a_stream() {
    let whole = |body: Value| {
        let mut answer = Answer::default();
        answer.whole(body.to_string().as_bytes(), &Secrets::default())?;
        answer.end()
    };
    let body = json!({
        "model": "m", "usage": {"prompt_tokens": 1},
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    });
    let finished = whole(body).unwrap();
    assert_eq!(finished.text, "hi");
    assert_eq!(
        finished.usage.unwrap(),
        Usage {
            prompt: 1,
            ..Usage::default()
        }
    );
    let parts = json!({"choices": [{"message": {"content": [{"type": "thinking"}, {"type": "text", "text": "hi"}]}}]});
    assert_eq!(whole(parts).unwrap().text, "hi");
    let tools = json!({"choices": [{"message": {"content": null, "tool_calls": []}, "finish_reason": "tool_calls"}]});
    assert_eq!(whole(tools).unwrap_err().label, "tool_calls");
    assert_eq!(
        whole(json!({"error": {"message": "no"}})).unwrap_err().label,
        "server_error"
    );
}

proptest! {
    /// Texts survive whatever is in them, wherever the stream is cut.
    #[test]
    fn texts_are_read_as_they_were_sent(texts in prop::collection::vec(".{0,20}", 1..8), size in 1_usize..40) {
        let body: String = texts.iter().map(|text| delta(text)).collect();
        let (said, finished) = read(format!("{body}data: [DONE]\n\n").as_bytes(), size).unwrap();
        prop_assert_eq!(&said, &texts.concat());
        prop_assert_eq!(finished.text, said);
    }

    /// Nothing that a server sends makes it panic.
    #[test]
    fn any_data_is_read_or_refused(data in ".{0,60}", json in r#"[\[\]{}":,a-z0-9 ]{0,60}"#) {
        for data in [data, json] {
            let mut answer = Answer::default();
            let _text = answer.event(&data, &Secrets::default());
            let _end = answer.end();
        }
    }
}
