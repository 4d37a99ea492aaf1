import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsServer;
import java.io.File;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;

public class OnJdk {
    static final Path FOLDER = Path.of(System.getenv("FOLDER"));
    static int number = 0;

    static void keep(HttpExchange exchange) throws IOException {
        String path = exchange.getRequestURI().getPath();
        StringBuilder text = new StringBuilder(path + "\n" + exchange.getRemoteAddress().getPort() + "\n");
        exchange.getRequestHeaders().forEach((name, values) -> {
            for (String each : values) text.append(name + ": " + each + "\n");
        });
        text.append("\n").append(new String(exchange.getRequestBody().readAllBytes()));
        Files.writeString(FOLDER.resolve("writing"), text);
        Files.move(FOLDER.resolve("writing"), FOLDER.resolve(String.format("%06d.delivery", number++)));
    }

    static void answer(HttpExchange exchange, int status, byte[] body) throws IOException {
        exchange.sendResponseHeaders(status, body.length == 0 ? -1 : body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }

    static void take(HttpExchange exchange) throws IOException {
        keep(exchange);
        String path = exchange.getRequestURI().getPath();
        if (path.equals("/close")) exchange.getResponseHeaders().set("Connection", "close");
        if (path.equals("/refuse")) answer(exchange, 400, "no such bed".getBytes());
        else answer(exchange, 200, new byte[0]);
    }

    public static void main(String[] args) throws Exception {
        char[] password = "receiver".toCharArray();
        KeyManagerFactory keys = KeyManagerFactory.getInstance("PKIX");
        keys.init(KeyStore.getInstance(new File(System.getenv("PKCS12")), password), password);
        SSLContext tls = SSLContext.getInstance("TLS");
        tls.init(keys.getKeyManagers(), null, null);
        var address = new InetSocketAddress("127.0.0.1", Integer.parseInt(System.getenv("PORT")));
        HttpsServer server = HttpsServer.create(address, 0);
        server.setHttpsConfigurator(new HttpsConfigurator(tls));
        server.createContext("/ams_verification_hash", e -> answer(e, 200, Files.readAllBytes(FOLDER.resolve("hash"))));
        server.createContext("/", OnJdk::take);
        server.start();
    }
}
