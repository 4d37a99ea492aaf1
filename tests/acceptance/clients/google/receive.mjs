// Google's client for Node works on the subscriptions PROJECT/KEYED and PROJECT/ONCE until it is killed, and says what
// it received and what was confirmed: `node receive.mjs PROJECT KEYED ONCE`.

import { Duration, PubSub } from '@google-cloud/pubsub';

const [project, keyed, once] = process.argv.slice(2);
const pubsub = new PubSub({ projectId: project });
const deadline = Duration.from({ seconds: 10 });

const say = (what, subscription, message) =>
  process.stdout.write(`${what} ${subscription} ${message.id} ${message.attributes.name}\n`);

function receive(name, acknowledge) {
  const subscription = pubsub.subscription(name, { minAckDeadline: deadline, maxAckDeadline: deadline });
  subscription.on('error', (error) => {
    console.log(`ended ${name} ${error}`);
    process.exit(1);
  });
  subscription.on('message', async (message) => {
    say('received', name, message);
    await acknowledge(message);
  });
}

receive(keyed, (message) => message.ack());
receive(once, async (message) => {
  try {
    await message.ackWithResponse();
  } catch {
    return; // it may come again
  }
  say('confirmed', once, message);
});
