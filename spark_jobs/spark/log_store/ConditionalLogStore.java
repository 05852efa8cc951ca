package postgres_cdc;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Commits to S3 that no other writer can overwrite: the store itself refuses the second of two that write one version
 * (If-None-Match). Delta's own store for S3 looks whether the file exists, and then writes it without a condition.
 */
public class ConditionalLogStore extends HadoopFileSystemLogStore {

    /** In Hadoop's S3A since 3.4.2: Options.CreateFileOptionKeys. */
    private static final String IF_NONE_MATCH = "fs.option.create.conditional.overwrite";

    public ConditionalLogStore(Configuration configuration) {
        super(configuration);
    }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration configuration)
            throws IOException {
        FileSystem fileSystem = path.getFileSystem(configuration);
        byte[] content = bytes(actions);
        var file = fileSystem.createFile(path).recursive().overwrite(true);
        if (!overwrite) {
            file.must(IF_NONE_MATCH, true);
        }
        try (FSDataOutputStream stream = file.build()) {
            stream.write(content);
        } catch (IOException refused) {
            if (overwrite) {
                throw refused;
            }
            byte[] found = read(fileSystem, path);
            if (found == null) {
                throw refused; // not because the file exists
            }
            // the write was made, its answer was lost, and S3A has tried again: a commit holds a random identifier
            if (!Arrays.equals(found, content)) {
                throw (IOException) new FileAlreadyExistsException(path.toString()).initCause(refused);
            }
        }
    }

    @Override
    public Boolean isPartialWriteVisible(Path path, Configuration configuration) {
        return false;
    }

    private static byte[] bytes(Iterator<String> actions) {
        ByteArrayOutputStream content = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            content.writeBytes((actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
        }
        return content.toByteArray();
    }

    private static byte[] read(FileSystem fileSystem, Path path) throws IOException {
        try (InputStream stream = fileSystem.open(path)) {
            return stream.readAllBytes();
        } catch (FileNotFoundException missing) {
            return null;
        }
    }
}
