// Right, where an invoice may be written twice: it is stored before its order is committed.
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
		kgo.BlockRebalanceOnPoll(), // no other copy gets these orders before their commit
		kgo.DefaultProduceTopic(os.Getenv("HIGHWATER_OUTPUT")),
	)
	if err != nil {
		log.Fatal(err)
	}
	for {
		orders := client.PollFetches(always).Records()
		invoices := make([]*kgo.Record, len(orders))
		for i, order := range orders {
			invoices[i] = &kgo.Record{Key: order.Key, Value: order.Value}
		}
		if err := client.ProduceSync(always, invoices...).FirstErr(); err != nil {
			log.Fatal(err) // before the commit: whoever reads these orders next does them again
		}
		if err := client.CommitRecords(always, orders...); err != nil {
			log.Print("these orders are read again: ", err)
		}
		client.AllowRebalance()
	}
}
