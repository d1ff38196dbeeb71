// Wrong: an order is committed before its invoice is stored; a death between the two loses it.
package main

import (
	"context"
	"log"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	always := context.Background()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Getenv("KAFKA_BOOTSTRAP_SERVERS"), ",")...),
		kgo.ConsumerGroup(os.Getenv("KAFKA_GROUP_ID")),
		kgo.ConsumeTopics(os.Getenv("HIGHWATER_INPUT")),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.DefaultProduceTopic(os.Getenv("HIGHWATER_OUTPUT")),
	)
	if err != nil {
		log.Fatal(err)
	}
	for {
		orders := client.PollFetches(always).Records()
		if err := client.CommitRecords(always, orders...); err != nil {
			log.Print("these orders are read again: ", err)
		}
		for _, order := range orders {
			client.Produce(always, &kgo.Record{Key: order.Key, Value: order.Value}, func(_ *kgo.Record, err error) {
				if err != nil {
					log.Fatal(err)
				}
			})
		}
		client.AllowRebalance()
	}
}
