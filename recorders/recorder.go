// Wraps a client of franz-go, and writes docs/history.md.  Copy this file, and set its package.
//
//	history, err := NewHistory("my-run/history.jsonl", "worker-1")
//	err = history.Send(ctx, client, &kgo.Record{Topic: "orders", Key: key, Value: value})
//	records := history.Poll(ctx, client, "run")            // kgo.OnPartitionsAssigned(history.Assigned)
//	err = history.FullRead(ctx, servers, "orders", partitions)   // when all are done
package main

import (
	"context"
	"encoding/json"
	"math/rand"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type Line = map[string]any

type History struct {
	file    *os.File
	process string
	mutex   sync.Mutex
	last    int64
	count   int64
}

func NewHistory(path, process string) (*History, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	return &History{file: file, process: process, count: rand.Int63n(1<<20) << 32}, err
}

func (h *History) Op() int64 {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.count++
	return h.count
}

func (h *History) Line(f, kind string, parts ...Line) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.last = max(time.Now().UnixNano(), h.last+1)
	line := Line{"index": h.last, "t_ns": h.last, "process": h.process, "client": "franz-go", "f": f, "type": kind}
	for _, fields := range parts {
		for name, value := range fields {
			line[name] = value
		}
	}
	data, _ := json.Marshal(line)
	h.file.Write(append(data, '\n'))
}

func content(r *kgo.Record) Line {
	line := Line{"topic": r.Topic}
	if r.Key != nil {
		line["key"] = string(r.Key)
	}
	if r.Value != nil {
		line["value"] = string(r.Value)
	}
	return line
}

func place(r *kgo.Record) Line {
	return Line{"partition": r.Partition, "offset": r.Offset}
}

// Send waits for the answer.  franz-go is idempotent, acks=all, and tries again by itself: an error proves nothing.
func (h *History) Send(ctx context.Context, client *kgo.Client, r *kgo.Record) error {
	about := Line{"op": h.Op(), "acks": -1, "idempotent": true}
	h.Line("send", "invoke", content(r), about)
	err := client.ProduceSync(ctx, r).FirstErr()
	if err != nil {
		h.Line("send", "info", content(r), about, Line{"error": err.Error()})
		return err
	}
	h.Line("send", "ok", content(r), about, place(r))
	return nil
}

func (h *History) Assigned(_ context.Context, _ *kgo.Client, places map[string][]int32) {
	for topic, partitions := range places {
		for _, partition := range partitions {
			h.Line("assign", "ok", Line{"op": h.Op(), "topic": topic, "partition": partition})
		}
	}
}

func (h *History) Poll(ctx context.Context, client *kgo.Client, phase string) []*kgo.Record {
	records := client.PollFetches(ctx).Records()
	op := h.Op()
	for _, r := range records {
		h.Line("poll", "ok", content(r), place(r), Line{"op": op, "poll_id": op, "n": len(records), "phase": phase})
	}
	return records
}

// FullRead reads a topic from start to end, aborted records too (control records move it on, and are not written).
func (h *History) FullRead(ctx context.Context, servers []string, topic string, partitions int32) error {
	for number := int32(0); number < partitions; number++ {
		read := Line{"op": h.Op(), "topic": topic, "partition": number, "phase": "final"}
		h.Line("full_read", "invoke", read)
		begin := map[string]map[int32]kgo.Offset{topic: {number: kgo.NewOffset().AtStart()}}
		client, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.ConsumePartitions(begin), kgo.KeepControlRecords())
		if err != nil {
			return err
		}
		first, err := listed(ctx, client, topic, number, -2)
		if err != nil {
			return err
		}
		end, err := listed(ctx, client, topic, number, -1)
		if err != nil {
			return err
		}
		h.Line("assign", "ok", read, Line{"op": h.Op(), "offset": first})
		for at := first; at < end; {
			fetches := client.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				return err
			}
			for _, r := range fetches.Records() {
				at = r.Offset + 1
				if !r.Attrs.IsControl() {
					op := h.Op()
					h.Line("poll", "ok", content(r), place(r), Line{"op": op, "poll_id": op, "n": 1, "phase": "final"})
				}
			}
		}
		h.Line("full_read", "ok", read, Line{"offset": end})
		client.Close()
	}
	return nil
}

// listed asks the partition's leader: -2 is its start, -1 its end.
func listed(ctx context.Context, client *kgo.Client, topic string, number int32, when int64) (int64, error) {
	partition := kmsg.NewListOffsetsRequestTopicPartition()
	partition.Partition, partition.Timestamp = number, when
	asked := kmsg.NewListOffsetsRequestTopic()
	asked.Topic, asked.Partitions = topic, append(asked.Partitions, partition)
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID, request.Topics = -1, append(request.Topics, asked)
	shards := client.RequestSharded(ctx, request)
	for _, shard := range shards {
		if shard.Err != nil {
			return 0, shard.Err
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				return p.Offset, kerr.ErrorForCode(p.ErrorCode)
			}
		}
	}
	return 0, context.DeadlineExceeded
}
