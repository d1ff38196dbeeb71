package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

type object map[string]any

func control(method, path string, body object) object {
	url, data := "http://127.0.0.1:9990", new(bytes.Buffer)
	if given := os.Getenv("CONTROL"); given != "" {
		url = given
	}
	if body != nil {
		must(json.NewEncoder(data).Encode(body))
	}
	request, _ := http.NewRequest(method, url+"/v1"+path, data)
	request.Header.Set("Authorization", "Bearer "+os.Getenv("HIGHWATER_CONTROL_TOKEN"))
	answer, err := http.DefaultClient.Do(request)
	must(err)
	defer answer.Body.Close()
	told := object{}
	must(json.NewDecoder(answer.Body).Decode(&told))
	if answer.StatusCode != 200 {
		log.Fatal(told)
	}
	return told
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	background, acknowledged := context.Background(), []string{}
	control("POST", "/topics", object{"name": "orders", "partitions": 1})
	history := fmt.Sprint("/history/", control("POST", "/history", object{})["history"])
	brokers := strings.Split(control("GET", "/status", nil)["bootstrap"].(string), ",")
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.TransactionalID("shop"), kgo.DefaultProduceTopic("orders"),
		kgo.AlwaysRetryEOF()) // Docker accepts connections to a broker that is down, and closes them
	must(err)
	must(client.BeginTransaction())
	denied := control("POST", "/faults", object{"name": "answer", "api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER"}) // once
	for number := range 200 {
		client.Produce(background, kgo.StringRecord(fmt.Sprint("order ", number)), func(record *kgo.Record, err error) {
			must(err)
			acknowledged = append(acknowledged, string(record.Value))
		})
	}
	killed := control("POST", "/faults", object{"name": "kill", "target": "leader of orders-0"}) // records are on their way
	must(client.Flush(background))
	control("DELETE", fmt.Sprint("/faults/", killed["id"]), nil) // starts it again
	control("DELETE", fmt.Sprint("/faults/", denied["id"]), nil) // fails where no request has met it
	control("POST", "/faults", object{"name": "hold", "api": "EndTxn", "for": 1})
	must(client.EndTransaction(background, kgo.TryCommit)) // takes a second
	control("POST", history+"/claims", object{"topic": "orders", "does": "acknowledged", "values": acknowledged})
	verdict := control("POST", history+"/check", object{"topic": "orders"})
	if verdict["story"] != "" || verdict["read"] != 200.0 {
		log.Fatal(verdict)
	}
	fmt.Println("go:", verdict["read"], "read of", verdict["acknowledged"], "acknowledged, no violation")
}
