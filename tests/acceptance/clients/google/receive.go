// Google's client for Go works on the subscriptions PROJECT/KEYED and PROJECT/ONCE until it is killed, and says what it
// received and what was confirmed: `./receive PROJECT KEYED ONCE`.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"cloud.google.com/go/pubsub/v2"
)

const deadline = 10 * time.Second

func main() {
	ctx := context.Background()
	client, err := pubsub.NewClient(ctx, os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	keyed, once := os.Args[2], os.Args[3]
	go receive(ctx, client, keyed, func(message *pubsub.Message) { message.Ack() })
	receive(ctx, client, once, func(message *pubsub.Message) {
		result := message.AckWithResult()
		go func() {
			if status, err := result.Get(ctx); err == nil && status == pubsub.AcknowledgeStatusSuccess {
				say("confirmed", once, message)
			}
		}()
	})
}

func receive(ctx context.Context, client *pubsub.Client, name string, acknowledge func(*pubsub.Message)) {
	subscriber := client.Subscriber(name)
	subscriber.ReceiveSettings.MinDurationPerAckExtension = deadline
	subscriber.ReceiveSettings.MaxDurationPerAckExtension = deadline
	err := subscriber.Receive(ctx, func(_ context.Context, message *pubsub.Message) {
		say("received", name, message)
		acknowledge(message)
	})
	fmt.Println("ended", name, err)
	os.Exit(1)
}

func say(what, subscription string, message *pubsub.Message) {
	fmt.Printf("%s %s %s %s\n", what, subscription, message.ID, message.Attributes["name"])
}
