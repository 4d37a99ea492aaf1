// The program of docs/how-to/google-clients.md for Go: `./garden [SECONDS]` waits before it publishes.
package main

import (
	"context"
	"fmt"
	"log"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/oauth2"
	"google.golang.org/api/option"
)

const count = 20

func main() {
	log.SetFlags(0)
	pause := 0 // seconds before anything is published
	if len(os.Args) > 1 {
		pause = must(strconv.Atoi(os.Args[1]))
	}
	ctx := context.Background()
	client := must(connect(ctx))
	topic := must(client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: "projects/greenhouse/topics/readings"}))
	beds := must(client.SubscriptionAdminClient.CreateSubscription(ctx, &pubsubpb.Subscription{
		Name: "projects/greenhouse/subscriptions/beds", Topic: topic.Name, EnableMessageOrdering: true}))
	ledger := must(client.SubscriptionAdminClient.CreateSubscription(ctx, &pubsubpb.Subscription{
		Name: "projects/greenhouse/subscriptions/ledger", Topic: topic.Name, EnableExactlyOnceDelivery: true}))

	var mutex sync.Mutex // callbacks of one key come one after the other, those of several at once
	order := map[string][]int{}
	again := 0
	inOrder := consume(ctx, client.Subscriber(beds.Name), func(message *pubsub.Message) bool {
		mutex.Lock()
		defer mutex.Unlock()
		n := must(strconv.Atoi(string(message.Data)))
		if n == 6 && again == 0 {
			again++
			message.Nack() // it comes again, and so does what follows it in its bed
			return false
		}
		if message.Attributes["sensor"] != fmt.Sprintf("sensor-%d", n%4) {
			log.Fatalf("sensor of %d", n)
		}
		if message.Attributes["googclient_traceparent"] == "" {
			log.Fatalf("%d is not traced", n)
		}
		before := slices.DeleteFunc(order[message.OrderingKey], func(each int) bool { return each >= n })
		order[message.OrderingKey] = append(before, n)
		message.Ack()
		handled := 0
		for _, bed := range order {
			handled += len(bed)
		}
		return handled == count
	})
	var confirmed atomic.Int32
	once := consume(ctx, client.Subscriber(ledger.Name), func(message *pubsub.Message) bool {
		// The result is there when the acknowledgement is kept for good.
		if must(message.AckWithResult().Get(ctx)) != pubsub.AcknowledgeStatusSuccess {
			return false
		}
		return confirmed.Add(1) == count
	})

	time.Sleep(time.Duration(pause) * time.Second)
	readings := client.Publisher(topic.Name)
	readings.EnableMessageOrdering = true
	var results []*pubsub.PublishResult
	for n := range count {
		results = append(results, readings.Publish(ctx, &pubsub.Message{
			Data:        []byte(strconv.Itoa(n)),
			Attributes:  map[string]string{"sensor": fmt.Sprintf("sensor-%d", n%4)},
			OrderingKey: fmt.Sprintf("bed-%d", n%4),
		}))
	}
	published := 0
	for _, result := range results {
		must(result.Get(ctx))
		published++
	}
	for _, ended := range []<-chan error{inOrder, once} {
		if err := <-ended; err != nil {
			log.Fatal(err)
		}
	}

	for _, bed := range slices.Sorted(maps.Keys(order)) {
		fmt.Println(bed, order[bed])
	}
	readings.Stop()
	for _, name := range []string{beds.Name, ledger.Name} {
		check(client.SubscriptionAdminClient.DeleteSubscription(ctx, &pubsubpb.DeleteSubscriptionRequest{Subscription: name}))
	}
	check(client.TopicAdminClient.DeleteTopic(ctx, &pubsubpb.DeleteTopicRequest{Topic: topic.Name}))
	check(client.Close())
	fmt.Printf("published %d confirmed %d again %d\n", published, confirmed.Load(), again)
}

func connect(ctx context.Context) (*pubsub.Client, error) {
	otel.SetTracerProvider(trace.NewTracerProvider())
	traced := &pubsub.ClientConfig{EnableOpenTelemetryTracing: true}
	if os.Getenv("PUBSUB_EMULATOR_HOST") != "" {
		return pubsub.NewClientWithConfig(ctx, "greenhouse", traced)
	}
	token := oauth2.StaticTokenSource(&oauth2.Token{AccessToken: os.Getenv("PUBSUB_TOKEN")})
	endpoint := option.WithEndpoint(os.Getenv("PUBSUB_ENDPOINT"))
	return pubsub.NewClientWithConfig(ctx, "greenhouse", traced, endpoint, option.WithTokenSource(token))
}

// consume lets act deal with messages until it says that it has dealt with all.
func consume(ctx context.Context, subscriber *pubsub.Subscriber, act func(*pubsub.Message) bool) <-chan error {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- subscriber.Receive(ctx, func(_ context.Context, message *pubsub.Message) {
			if act(message) {
				stop()
			}
		})
	}()
	return ended
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
