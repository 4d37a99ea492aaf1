// Ask with Java's HttpClient as it comes, which prefers HTTP/2: over plain HTTP it offers to upgrade to it, over TLS it
// offers it in the handshake. Run as java Asks.java PLAN. The plan is read by an engine-free parser at the end.

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

public class Asks {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> plan = new Json(Files.readString(Path.of(arguments[0]))).object();
        Path ca = Path.of((String) plan.get("ca"));
        HttpClient.Builder building = HttpClient.newBuilder();
        if (Files.exists(ca)) building.sslContext(trusting(ca));
        HttpClient client = building.build();
        List<String> answers = new ArrayList<>();
        for (Object each : (List<?>) plan.get("asks")) {
            @SuppressWarnings("unchecked")
            Map<String, Object> ask = (Map<String, Object>) each;
            HttpResponse<String> answer = client.send(request((String) plan.get("base"), ask), BodyHandlers.ofString());
            String version = answer.version() == HttpClient.Version.HTTP_2 ? "2" : "1.1";
            answers.add("{\"status\":" + answer.statusCode() + ",\"version\":\"" + version + "\",\"body\":"
                + Json.quoted(answer.body()) + "}");
        }
        System.out.println("[" + String.join(",", answers) + "]");
    }

    static HttpRequest request(String base, Map<String, Object> ask) {
        // Connection is not for callers to set here, so that it is never closed.
        return HttpRequest.newBuilder(URI.create(base + ask.get("path")))
            .timeout(Duration.ofSeconds(30))
            .header("x-api-key", (String) ask.get("token"))
            .expectContinue((Boolean) ask.get("expect"))
            .method((String) ask.get("method"), body(ask))
            .build();
    }

    static BodyPublisher body(Map<String, Object> ask) {
        String body = (String) ask.get("body");
        if (body.isEmpty()) return BodyPublishers.noBody();
        if (!(Boolean) ask.get("chunked")) return BodyPublishers.ofString(body);
        return BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(body.getBytes()));
    }

    static SSLContext trusting(Path ca) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (var file = Files.newInputStream(ca)) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        TrustManagerFactory managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, managers.getTrustManagers(), null);
        return context;
    }

    /** As much of JSON as a plan has: the JDK brings no parser. */
    static class Json {
        private final String text;
        private int at = 0;

        Json(String text) {
            this.text = text;
        }

        private char next() {
            while (" \n,:".indexOf(text.charAt(at)) >= 0) at++;
            return text.charAt(at);
        }

        Map<String, Object> object() {
            Map<String, Object> members = new LinkedHashMap<>();
            next();
            at++;
            while (next() != '}') {
                String name = string();
                members.put(name, value());
            }
            at++;
            return members;
        }

        private Object value() {
            char first = next();
            if (first == '{') return object();
            if (first == '"') return string();
            if (first == '[') return list();
            boolean isTrue = first == 't';
            at += isTrue ? 4 : 5;
            return isTrue;
        }

        private List<Object> list() {
            List<Object> items = new ArrayList<>();
            at++;
            while (next() != ']') items.add(value());
            at++;
            return items;
        }

        private String string() {
            next();
            StringBuilder read = new StringBuilder();
            for (at++; text.charAt(at) != '"'; at++) {
                if (text.charAt(at) == '\\') at++;
                read.append(text.charAt(at));
            }
            at++;
            return read.toString();
        }

        static String quoted(String text) {
            StringBuilder written = new StringBuilder("\"");
            for (char each : text.toCharArray()) {
                if (each == '"' || each == '\\') written.append('\\').append(each);
                else if (each < ' ') written.append(String.format("\\u%04x", (int) each));
                else written.append(each);
            }
            return written.append('"').toString();
        }
    }
}
