// The program of docs/how-to/google-clients.md for Java: `java -cp 'jars/*' Garden.java [SECONDS]` waits before it publishes.
import com.google.api.gax.core.CredentialsProvider;
import com.google.api.gax.core.FixedCredentialsProvider;
import com.google.api.gax.core.NoCredentialsProvider;
import com.google.api.gax.grpc.GrpcTransportChannel;
import com.google.api.gax.grpc.InstantiatingGrpcChannelProvider;
import com.google.api.gax.rpc.FixedTransportChannelProvider;
import com.google.api.gax.rpc.TransportChannelProvider;
import com.google.auth.oauth2.AccessToken;
import com.google.auth.oauth2.GoogleCredentials;
import com.google.cloud.pubsub.v1.AckResponse;
import com.google.cloud.pubsub.v1.MessageReceiver;
import com.google.cloud.pubsub.v1.MessageReceiverWithAckResponse;
import com.google.cloud.pubsub.v1.Publisher;
import com.google.cloud.pubsub.v1.Subscriber;
import com.google.cloud.pubsub.v1.SubscriptionAdminClient;
import com.google.cloud.pubsub.v1.SubscriptionAdminSettings;
import com.google.cloud.pubsub.v1.TopicAdminClient;
import com.google.cloud.pubsub.v1.TopicAdminSettings;
import com.google.protobuf.ByteString;
import com.google.pubsub.v1.PubsubMessage;
import com.google.pubsub.v1.Subscription;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;

public class Garden {
    static final int COUNT = 20;
    static final String TOPIC = "projects/greenhouse/topics/readings";
    static final String BEDS = "projects/greenhouse/subscriptions/beds";
    static final String LEDGER = "projects/greenhouse/subscriptions/ledger";

    static final Map<String, List<Integer>> order = new ConcurrentSkipListMap<>();
    static final AtomicInteger again = new AtomicInteger(), confirmed = new AtomicInteger();
    static final CountDownLatch allInOrder = new CountDownLatch(1), left = new CountDownLatch(COUNT);

    public static void main(String[] arguments) throws Exception {
        int pause = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 0; // seconds before anything is published
        String emulator = System.getenv("PUBSUB_EMULATOR_HOST");
        ManagedChannel plain = emulator == null ? null : ManagedChannelBuilder.forTarget(emulator).usePlaintext().build();
        TransportChannelProvider channel = plain == null
            ? InstantiatingGrpcChannelProvider.newBuilder().setEndpoint(System.getenv("PUBSUB_ENDPOINT")).build()
            : FixedTransportChannelProvider.create(GrpcTransportChannel.create(plain));
        CredentialsProvider credentials = plain == null
            ? FixedCredentialsProvider.create(GoogleCredentials.create(new AccessToken(System.getenv("PUBSUB_TOKEN"), null)))
            : NoCredentialsProvider.create();

        var topics = TopicAdminClient.create(TopicAdminSettings.newBuilder()
            .setTransportChannelProvider(channel).setCredentialsProvider(credentials).build());
        var subscriptions = SubscriptionAdminClient.create(SubscriptionAdminSettings.newBuilder()
            .setTransportChannelProvider(channel).setCredentialsProvider(credentials).build());
        topics.createTopic(TOPIC);
        var made = Subscription.newBuilder().setTopic(TOPIC);
        subscriptions.createSubscription(made.clone().setName(BEDS).setEnableMessageOrdering(true).build());
        subscriptions.createSubscription(made.clone().setName(LEDGER).setEnableExactlyOnceDelivery(true).build());

        var consumers = List.of(
            Subscriber.newBuilder(BEDS, inOrder())
                .setChannelProvider(channel).setCredentialsProvider(credentials).build(),
            Subscriber.newBuilder(LEDGER, once())
                .setChannelProvider(channel).setCredentialsProvider(credentials).build());
        for (Subscriber each : consumers) each.startAsync().awaitRunning();

        Thread.sleep(pause * 1000L);
        var traces = OpenTelemetrySdk.builder().setTracerProvider(SdkTracerProvider.builder().build()).build();
        Publisher readings = Publisher.newBuilder(TOPIC).setEnableMessageOrdering(true)
            .setEnableOpenTelemetryTracing(true).setOpenTelemetry(traces)
            .setChannelProvider(channel).setCredentialsProvider(credentials).build();
        List<Future<String>> ids = new ArrayList<>();
        for (int n = 0; n < COUNT; n++) {
            ids.add(readings.publish(PubsubMessage.newBuilder()
                .setData(ByteString.copyFromUtf8("" + n))
                .putAttributes("sensor", "sensor-" + n % 4)
                .setOrderingKey("bed-" + n % 4)
                .build()));
        }
        for (Future<String> each : ids) each.get();
        allInOrder.await();
        left.await();

        order.forEach((bed, numbers) -> System.out.println(bed + " " + numbers));
        readings.shutdown();
        for (Subscriber each : consumers) each.stopAsync().awaitTerminated();
        subscriptions.deleteSubscription(BEDS);
        subscriptions.deleteSubscription(LEDGER);
        topics.deleteTopic(TOPIC);
        topics.close();
        subscriptions.close();
        if (plain != null) plain.shutdown();
        System.out.printf("published %d confirmed %d again %d%n", ids.size(), confirmed.get(), again.get());
    }

    static MessageReceiver inOrder() {
        return (message, reply) -> {
            int n = Integer.parseInt(message.getData().toStringUtf8());
            if (n == 6 && again.compareAndSet(0, 1)) {
                reply.nack(); // it comes again, and so does what follows it in its bed
                return;
            }
            if (!message.getAttributesOrThrow("sensor").equals("sensor-" + n % 4)) throw new IllegalStateException();
            message.getAttributesOrThrow("googclient_traceparent");
            synchronized (order) { // receivers of one key come one after the other, those of several at once
                var bed = order.computeIfAbsent(message.getOrderingKey(), key -> new ArrayList<>());
                bed.removeIf(each -> each >= n);
                bed.add(n);
                if (order.values().stream().mapToInt(List::size).sum() == COUNT) allInOrder.countDown();
            }
            reply.ack();
        };
    }

    static MessageReceiverWithAckResponse once() {
        return (message, reply) -> {
            try {
                // The response is there when the acknowledgement is kept for good.
                if (reply.ack().get() != AckResponse.SUCCESSFUL) return;
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
            confirmed.incrementAndGet();
            left.countDown();
        };
    }
}
