/** What the API answers; the fields are told in docs/reference. */

export interface Membership {
  project: string;
  roles: string[];
  topics: string[];
  subscriptions: string[];
}

export interface User {
  uuid: string;
  name: string;
  email?: string;
  service_roles: string[];
  projects?: Membership[];
  created_on?: string;
  token?: string;
}

export interface Project {
  name: string;
  created_on: string;
  description?: string;
  retentionSeconds?: number;
}

export interface Topic {
  name: string;
  created_on: string;
  schema?: string;
  retentionSeconds?: number;
}

export interface PushConfig {
  type: string;
  pushEndpoint: string;
  maxMessages: number;
  authorizationHeader: { type?: string; value?: string };
  retryPolicy: { type?: string; period?: number };
  verificationHash: string;
  verified: boolean;
  mattermostUrl: string;
  base64Decode: boolean;
  deadLetterTopic?: string;
  maxDeliveryAttempts?: number;
}

export interface Subscription {
  name: string;
  topic: string;
  ackDeadlineSeconds: number;
  createdOn: string;
  pushConfig: PushConfig;
  pushStatus?: string;
  type?: string;
  filter?: string;
  detached?: boolean;
  deadLetterPolicy?: { deadLetterTopic: string; maxDeliveryAttempts?: number };
}

export interface Message {
  messageId: string;
  publishTime: string;
  data: string;
  attributes?: Record<string, string>;
  orderingKey?: string;
}

export interface ReceivedMessage {
  ackId: string;
  message: Message;
  orderingKey?: string;
  deliveryAttempt?: number;
}

export interface Offsets {
  min: number;
  max: number;
  current: number;
}

export interface Schema {
  uuid: string;
  name: string;
  type: string;
  schema: unknown;
}

export interface Doctor {
  healthy: boolean;
  findings: { wrong: boolean; text: string }[];
  standing?: { min: number; max: number; current: number; backlog: number; handedOut: number; lost: number } & Record<
    string,
    number
  >;
}

export interface PushStatus {
  pushStatus: string;
  state: string;
  backlog?: number;
  circuit?: string;
  batch?: number;
  lastSuccess?: string;
  nextAttempt?: string;
  error?: { time: string; what: string; detail: string; status?: number };
  delivered?: number;
  deliveries?: number;
  failed?: number;
  dead?: number;
  attempts?: { time: string; messages: number; milliseconds: number; bytes: number; status?: number; error?: string }[];
}

type Values = (number | null)[];

export interface History {
  interval: number;
  start: string;
  end: string;
  project?: { published: Values; publishedBytes: Values; delivered: Values; lag: Values };
  topics: Record<string, { published: Values; publishedBytes: Values }>;
  subscriptions: Record<string, { delivered: Values; lag: Values; oldestUnackedSeconds: Values }>;
}

export interface Counts {
  time: string;
  topics: Record<string, { messages: number; bytes: number }>;
  subscriptions: Record<
    string,
    {
      current: number;
      end: number;
      lag: number;
      oldestUnackedSeconds: number | null;
      outstanding: number | null;
      push: string | null;
    }
  >;
}
