// Google's client for Java works on the subscriptions PROJECT/KEYED and PROJECT/ONCE until it is killed, and says what
// it received and what was confirmed: `java -cp 'jars/*' Receive.java PROJECT KEYED ONCE`.

import com.google.api.core.ApiService;
import com.google.api.gax.core.NoCredentialsProvider;
import com.google.api.gax.grpc.GrpcTransportChannel;
import com.google.api.gax.rpc.FixedTransportChannelProvider;
import com.google.cloud.pubsub.v1.AckResponse;
import com.google.cloud.pubsub.v1.MessageReceiver;
import com.google.cloud.pubsub.v1.MessageReceiverWithAckResponse;
import com.google.cloud.pubsub.v1.Subscriber;
import com.google.pubsub.v1.PubsubMessage;
import io.grpc.ManagedChannelBuilder;
import java.time.Duration;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

public class Receive {
    static final Duration DEADLINE = Duration.ofSeconds(10);
    static final ExecutorService waiting = Executors.newCachedThreadPool();

    public static void main(String[] arguments) throws Exception {
        String path = "projects/" + arguments[0] + "/subscriptions/", keyed = arguments[1], once = arguments[2];
        MessageReceiver plainly = (message, reply) -> {
            say("received", keyed, message);
            reply.ack();
        };
        MessageReceiverWithAckResponse confirmed = (message, reply) -> {
            say("received", once, message);
            Future<AckResponse> response = reply.ack();
            waiting.execute(() -> confirm(response, once, message));
        };
        start(keyed, Subscriber.newBuilder(path + keyed, plainly));
        start(once, Subscriber.newBuilder(path + once, confirmed));
        Thread.currentThread().join();
    }

    static void start(String name, Subscriber.Builder building) {
        var channel = ManagedChannelBuilder.forTarget(System.getenv("PUBSUB_EMULATOR_HOST")).usePlaintext().build();
        Subscriber subscriber = building
            .setChannelProvider(FixedTransportChannelProvider.create(GrpcTransportChannel.create(channel)))
            .setCredentialsProvider(NoCredentialsProvider.create())
            .setMinDurationPerAckExtensionDuration(DEADLINE)
            .setMaxDurationPerAckExtensionDuration(DEADLINE.plusSeconds(1))
            .build();
        subscriber.addListener(new ApiService.Listener() {
            @Override
            public void failed(ApiService.State from, Throwable failure) {
                System.out.println("ended " + name + " " + failure);
                Runtime.getRuntime().halt(1);
            }
        }, Runnable::run);
        subscriber.startAsync();
    }

    static void confirm(Future<AckResponse> response, String subscription, PubsubMessage message) {
        try {
            if (response.get() == AckResponse.SUCCESSFUL) say("confirmed", subscription, message);
        } catch (Exception error) {
            // It may come again.
        }
    }

    static void say(String what, String subscription, PubsubMessage message) {
        System.out.printf("%s %s %s %s%n", what, subscription, message.getMessageId(), message.getAttributesOrThrow("name"));
    }
}
