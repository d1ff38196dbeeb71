use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use serde_json::{json, Value};
use std::{env, time::Duration};

fn control(method: &str, path: &str, body: Value) -> Value {
    let url = env::var("CONTROL").unwrap_or("http://127.0.0.1:9990".into()) + "/v1" + path;
    let token = format!("Bearer {}", env::var("HIGHWATER_CONTROL_TOKEN").unwrap_or_default());
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let answer = match method {
        "GET" => agent.get(&url).header("Authorization", token).call(),
        "DELETE" => agent.delete(&url).header("Authorization", token).call(),
        _ => agent.post(&url).header("Authorization", token).send_json(body),
    };
    let mut answer = answer.expect("the control API does not answer");
    let told: Value = answer.body_mut().read_json().unwrap();
    assert!(answer.status() == 200, "{told}");
    told
}

fn main() {
    control("POST", "/topics", json!({"name": "orders", "partitions": 1}));
    let history = format!("/history/{}", control("POST", "/history", json!({}))["history"]);
    let (brokers, long) = (control("GET", "/status", json!({})), Duration::from_secs(60));
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", brokers["bootstrap"].as_str().unwrap())
        .set("transactional.id", "shop")
        .create()
        .unwrap();
    producer.init_transactions(long).unwrap();
    producer.begin_transaction().unwrap();
    let denied = json!({"name": "answer", "api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER"});
    let denied = control("POST", "/faults", denied); // the first request gets this error
    let (values, mut killed): (Vec<_>, _) = ((0..200).map(|n| format!("order {n}")).collect(), json!({}));
    for (number, value) in values.iter().enumerate() {
        producer.send(BaseRecord::<(), str>::to("orders").payload(value)).unwrap();
        if number == 100 { // the leader dies with records on their way
            killed = control("POST", "/faults", json!({"name": "kill", "target": "leader of orders-0"}));
        }
    }
    producer.flush(long).unwrap();
    control("DELETE", &format!("/faults/{}", killed["id"]), json!({})); // starts it again
    control("DELETE", &format!("/faults/{}", denied["id"]), json!({})); // fails where no request has met it
    control("POST", "/faults", json!({"name": "hold", "api": "EndTxn", "for": 1}));
    producer.commit_transaction(long).unwrap(); // takes a second, and says that all were acknowledged
    control("POST", &format!("{history}/claims"), json!({"topic": "orders", "does": "acknowledged", "values": values}));
    let verdict = control("POST", &format!("{history}/check"), json!({"topic": "orders"}));
    assert!(verdict["story"] == "" && verdict["read"] == 200, "{verdict}");
    println!("rust: {} read of {} acknowledged, no violation", verdict["read"], verdict["acknowledged"]);
}
