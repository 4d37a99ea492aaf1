// The program of docs/how-to/google-clients.md for Node: `node garden.mjs [SECONDS]` waits before it publishes.
import { PubSub } from '@google-cloud/pubsub';
import { trace } from '@opentelemetry/api';
import { BasicTracerProvider } from '@opentelemetry/sdk-trace-base';
import { OAuth2Client } from 'google-auth-library';

const COUNT = 20;
const pause = Number(process.argv[2] ?? 0); // seconds before anything is published

function connect() {
  trace.setGlobalTracerProvider(new BasicTracerProvider());
  const always = { projectId: 'greenhouse', enableOpenTelemetryTracing: true };
  if (process.env.PUBSUB_EMULATOR_HOST) return new PubSub(always);
  const authClient = new OAuth2Client();
  authClient.setCredentials({ access_token: process.env.PUBSUB_TOKEN });
  // emulatorMode: any host that is not Google's is taken for an emulator otherwise.
  return new PubSub({ ...always, apiEndpoint: process.env.PUBSUB_ENDPOINT, emulatorMode: false, authClient });
}

/** Let `act` deal with messages until it says that it has dealt with all. */
function consume(subscription, act) {
  return new Promise((resolve, reject) => {
    subscription.on('error', reject);
    subscription.on('message', async (message) => {
      if (await act(message)) resolve();
    });
  });
}

const pubsub = connect();
const [topic] = await pubsub.createTopic('readings');
const [beds] = await topic.createSubscription('beds', { enableMessageOrdering: true });
const [ledger] = await topic.createSubscription('ledger', { enableExactlyOnceDelivery: true });

const order = {};
let again = 0;
const inOrder = consume(beds, (message) => {
  const n = Number(message.data.toString());
  if (n === 6 && again === 0) {
    again += 1;
    message.nack(); // it comes again, and so does what follows it in its bed
    return false;
  }
  if (message.attributes.sensor !== `sensor-${n % 4}`) throw new Error(`sensor of ${n}`);
  if (!message.attributes.googclient_traceparent) throw new Error(`${n} is not traced`);
  const before = (order[message.orderingKey] ?? []).filter((each) => each < n);
  order[message.orderingKey] = [...before, n];
  message.ack();
  return Object.values(order).flat().length === COUNT;
});

let confirmed = 0;
const once = consume(ledger, async (message) => {
  await message.ackWithResponse(); // resolves when the acknowledgement is kept for good
  confirmed += 1;
  return confirmed === COUNT;
});

await new Promise((resolve) => setTimeout(resolve, pause * 1000));
const readings = pubsub.topic('readings', { messageOrdering: true });
const ids = await Promise.all(
  Array.from({ length: COUNT }, (_, n) =>
    readings.publishMessage({
      data: Buffer.from(String(n)),
      attributes: { sensor: `sensor-${n % 4}` },
      orderingKey: `bed-${n % 4}`,
    }),
  ),
);
await Promise.all([inOrder, once]);

for (const bed of Object.keys(order).sort()) console.log(bed, order[bed].join(' '));
await Promise.all([beds.close(), ledger.close()]);
await beds.delete();
await ledger.delete();
await topic.delete();
await pubsub.close();
console.log(`published ${ids.length} confirmed ${confirmed} again ${again}`);
