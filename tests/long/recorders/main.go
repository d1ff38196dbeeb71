// usage: main SERVER TOPIC HISTORY work|lose|read
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(server, topic, path, step string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	history, err := NewHistory(path, "go-"+step)
	if err != nil {
		return err
	}
	if step == "read" {
		return history.FullRead(ctx, []string{server}, topic, 3)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(server), kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic),
		kgo.OnPartitionsAssigned(history.Assigned))
	if err != nil {
		return err
	}
	defer client.Close()
	if step == "lose" {
		return history.Send(ctx, client, &kgo.Record{Topic: topic, Value: []byte("gone")})
	}
	for n := 0; n < 60; n++ {
		key, value := fmt.Sprintf("key %d", n%7), fmt.Sprintf("value %d", n)
		if err := history.Send(ctx, client, &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value)}); err != nil {
			return err
		}
	}
	for count := 0; count < 60; count += len(history.Poll(ctx, client, "run")) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}
